"""Replaces nodes that fail in running boxes."""

"""Replacement of nodes that fail in running boxes."""

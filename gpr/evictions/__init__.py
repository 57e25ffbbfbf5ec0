"""Evicts running boxes."""

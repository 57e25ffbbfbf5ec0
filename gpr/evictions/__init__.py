"""Evictions of running boxes."""

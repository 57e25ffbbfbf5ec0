"""Supplies: nodes that can be ordered."""

"""Nodes that are set aside: why, what is done about it, and how they come back."""

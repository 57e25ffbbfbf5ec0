"""Replacement: a node of a running box fails, and a spare takes its place."""

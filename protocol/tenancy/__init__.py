"""Defines messages about workspaces in a cluster."""

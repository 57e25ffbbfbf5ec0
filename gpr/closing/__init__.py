"""Archiving and removing workspaces and projects: a preview, and the steps by which ticks end requests."""

"""Roles that groups of identity providers give in workspaces, and administrators of projects."""

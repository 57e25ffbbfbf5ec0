"""Owners add users of their own workspaces at once, and invite all others by name."""

"""Binds, isolates and repairs the namespaces of workspaces."""

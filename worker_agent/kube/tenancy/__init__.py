"""Namespaces of workspaces: bound, isolated, and looked after."""

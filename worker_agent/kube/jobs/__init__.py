"""Runs the jobs of GPRs in the namespaces of their workspaces."""

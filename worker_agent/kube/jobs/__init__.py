"""Jobs of GPRs in the namespaces of their workspaces."""

"""Archives and removes workspaces and projects: it has a preview, and the steps by which ticks end requests."""

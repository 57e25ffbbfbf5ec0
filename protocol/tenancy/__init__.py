"""Messages about workspaces in a cluster."""

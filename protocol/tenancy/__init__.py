"""Messages about workspaces in a cluster: namespaces and accounts, requests, waiting pods, and milestones of GPRs."""

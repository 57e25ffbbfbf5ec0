"""Makes kubeconfigs of workspaces. The hub asks the agent of each cluster for a token, and shows it once."""

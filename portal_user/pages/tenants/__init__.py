"""What the pages on workspaces, their people, namespaces and kubeconfigs show."""

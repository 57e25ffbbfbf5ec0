"""Serves the pages on workspaces, requests for them, their people, namespaces and kubeconfigs."""

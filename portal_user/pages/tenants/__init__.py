"""Builds context objects of the pages on workspaces, their people, namespaces and kubeconfigs."""

"""Reaches a cluster with a kubeconfig, without kubectl."""

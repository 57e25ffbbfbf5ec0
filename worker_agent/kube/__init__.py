"""Drives real Kubernetes clusters."""

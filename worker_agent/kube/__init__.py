"""The driver for real Kubernetes clusters."""

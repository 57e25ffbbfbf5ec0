"""The driver for real Kubernetes clusters. What its parts rest on is measured and proved on a real API server (tests/kube)."""

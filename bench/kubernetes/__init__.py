"""Measures the agent and the whole product on a real Kubernetes API server."""

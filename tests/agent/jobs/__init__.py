"""The agent turns jobs into Kubernetes objects."""

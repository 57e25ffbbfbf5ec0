"""Every part of the agent uses these modules to talk to a Kubernetes API server."""

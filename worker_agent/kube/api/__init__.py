"""What every part of the agent uses to talk to a Kubernetes API server."""

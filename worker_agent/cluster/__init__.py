"""What the agent can do in its cluster: `base` says it, a driver does it."""

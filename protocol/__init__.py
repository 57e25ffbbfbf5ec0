"""What the hub, the agent and the client share: messages, steps, limits of checks, names in a cluster. It imports nothing of the rest."""

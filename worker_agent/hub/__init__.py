"""What the agent says to the hub, what it hears, and what the hub has not stored yet."""

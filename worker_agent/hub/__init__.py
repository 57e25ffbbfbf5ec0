"""The agent's conversation with the hub."""

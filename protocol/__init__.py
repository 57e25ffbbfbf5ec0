"""The contract between hub, agents and clients."""

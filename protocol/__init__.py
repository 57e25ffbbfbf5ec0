"""The contract between the hub, its agents and its clients."""

"""Defines the contract between hub, agents and clients."""

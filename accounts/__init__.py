"""Holds users, API tokens and sign-in. Agents' credentials live in inventory."""

"""Shared parts of REST endpoints. It imports no app."""

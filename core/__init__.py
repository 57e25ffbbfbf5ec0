"""Shared parts of all apps. It imports no app."""

"""Observes nodes, marks them, guards binding and repairs drift."""

"""Serves the pages on the queue, its plan, decisions, promises and evictions."""

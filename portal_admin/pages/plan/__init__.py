"""Builds context objects of the pages on the queue, its plan, previews of decisions, promises and evictions."""

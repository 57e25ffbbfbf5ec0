"""Counts GPU time held and used by day, and what it costs."""

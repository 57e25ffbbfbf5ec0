"""Capacity over time, and the search for the first place for one more box."""

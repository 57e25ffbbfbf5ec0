"""Stores capacity over time, and searches the first place for one more box."""

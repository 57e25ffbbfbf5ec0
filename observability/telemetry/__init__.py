"""Keeps readings of GPUs: the newest of each, and their course over time."""

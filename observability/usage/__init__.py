"""Counts by readings what GPUs of boxes did."""

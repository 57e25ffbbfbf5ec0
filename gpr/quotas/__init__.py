"""Computes quota usage, borrowing beyond guarantees, and fair shares over time."""

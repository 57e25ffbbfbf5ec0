"""Maintenance windows and their effects on promises and boxes."""

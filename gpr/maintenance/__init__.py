"""Maintenance windows, with the promises and boxes that each of them meets."""

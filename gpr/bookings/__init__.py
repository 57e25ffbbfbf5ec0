"""Bookings: requests with a fixed start, one by one or as a series."""

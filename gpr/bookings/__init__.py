"""Bookings: requests with a fixed start, and series of them."""

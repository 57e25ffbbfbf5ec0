"""Bookings are requests with a fixed start; there are series of them."""

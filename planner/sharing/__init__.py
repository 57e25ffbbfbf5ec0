"""Decides how requests share GPUs: evictions, displaced slots, spares, supplies, bookings, edits and defragmentation."""

"""Sharing: eviction rights, evictions, displaced slots, spares, supplies, bookings, edits and defragmentation."""

"""Who gives way to whom: eviction rights, evictions, displaced slots, spares, supplies, bookings, edits and defragmentation."""

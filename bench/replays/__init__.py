"""Replays job lists through the simulator: waits, promises and guarantees."""

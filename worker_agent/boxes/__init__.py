"""Brings nodes into boxes, checks and fences them, and takes them out. It has no threads, network, clock or random source of its own."""

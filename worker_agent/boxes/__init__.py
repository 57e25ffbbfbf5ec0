"""Boxes on nodes: enter, exit, fence, check. No threads, network, clock or random source of its own."""

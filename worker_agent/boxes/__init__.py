"""Boxes on nodes: enter, exit, fence, check. It has no threads, network, clock or random source of its own."""

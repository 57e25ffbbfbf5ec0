"""Pods: who waits, what fits into an open box, lifting the gate, draining, and telling pods when their box ends."""

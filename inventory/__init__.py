"""Keeps clusters, nodes, GPUs, their reservations, and the hub's side of EGS Sync.

Must not live here: who gets what (gpr), what a slice may do (slices).
"""

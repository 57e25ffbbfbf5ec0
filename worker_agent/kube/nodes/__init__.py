"""Nodes: observation, marks, the bind guard, drift repair."""

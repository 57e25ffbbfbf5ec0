"""Defragmentation: moves of running boxes that free whole nodes, proposed by the planner and decided by an administrator."""

"""Declares what the agent needs from its cluster (base.py), and simulates one."""

"""What the agent needs from its cluster (base.py), and a simulated one."""

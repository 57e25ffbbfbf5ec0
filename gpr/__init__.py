"""GPU Provision Requests (GPRs): lifecycle, queue, promises, and the tick that turns plans into reservations.

Planning itself is in `planner`; nodes are the inventory's, Kubernetes the agent's, HTML the portals'.
"""

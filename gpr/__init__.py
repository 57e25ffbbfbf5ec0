"""GPU Provision Requests: their life, their queue, the allocator that turns plans into reservations.

Lives here: Gpr, its lifecycle and services, promises, the tick. The planning itself is `planner`, pure.
Must not live here: Kubernetes (the agent's), how a node is held (inventory), HTML (the portals').
"""

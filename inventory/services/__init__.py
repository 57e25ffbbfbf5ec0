"""Every write to the inventory.

clusters: clusters and how their agents join. agents: what an agent proves, and its session. sync: what it is told and what it saw.
events: what it reports. inventory: its nodes and GPUs. nodes: cordon. maintenance: announced closures. supplies: more nodes that
can be had, and their orders. reservations: who holds what.

Order of locks, everywhere: the agent's session, the witness, a GPR, a slice, nodes by id, reservations by id, orders of nodes, a cluster's
generation last.
"""

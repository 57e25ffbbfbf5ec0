"""Makes every write to the inventory.

Order of locks: the agent's session, the stored plan, a GPR, a slice, nodes by id, reservations by id, node orders, a cluster's generation.
"""

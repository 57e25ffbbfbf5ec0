"""What there is and who holds it: clusters, nodes, GPUs, reservations, and the hub's side of EGS Sync.

Lives here: joining and syncing of agents, node and GPU state, Reservation with its GPUs (the schedule of every node), step logs.
Must not live here: who should get what (gpr), what a slice may do (slices). A reservation points up by string foreign keys only.
"""

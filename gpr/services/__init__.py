"""Every write to a GPR.

requests: submit, edit, cancel, estimate. bookings: series of them. decisions, moving, defragmenting: what an administrator decides.
ending: release, eviction, expiry, the last step. sparing: notices that are for nothing.
replacing: nodes of running boxes that fail.
Must not live here: HTTP or HTML, Kubernetes (the agent's), choosing nodes (the planner's).
"""

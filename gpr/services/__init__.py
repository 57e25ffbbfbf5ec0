"""Every write to a GPR.

requests: submit, edit, cancel, estimate. bookings: series of them. decisions: what an administrator decides. ending: release, eviction,
expiry, the last step.
Must not live here: HTTP or HTML, Kubernetes (the agent's), choosing nodes (the planner's).
"""

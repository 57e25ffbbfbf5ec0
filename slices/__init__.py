"""Who the tenants are: projects, slices (workspaces), their namespaces, members, clusters and policy.

Lives here: what a user may see and do in a slice, and the limits a slice's requests are held against.
Must not live here: requests themselves (gpr), nodes (inventory).
"""

"""Keeps tenants: projects, slices (workspaces), namespaces, members, policy, quotas, kubeconfigs.

Must not live here: requests (gpr), nodes (inventory).
"""

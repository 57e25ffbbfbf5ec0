"""Rules of alerts watch signals of GPUs, nodes, clusters, requests and tenants, and tell people once of what is wrong.

Must not live here: how notices are sent (journal), what is done about it.
"""

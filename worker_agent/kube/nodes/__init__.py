"""Nodes: what the cluster says of each, the marks and the bind guard of EGS, and the repair of what somebody else changed."""

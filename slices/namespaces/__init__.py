"""Which namespaces a workspace has in its clusters, and which names it may choose."""

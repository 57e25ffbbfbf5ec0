"""Namespaces of a workspace in its clusters, and the names that it may choose."""

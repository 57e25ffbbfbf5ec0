"""Requests that are Kubernetes objects: filed, changed and ended as their objects are."""

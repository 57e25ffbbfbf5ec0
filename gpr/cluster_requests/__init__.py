"""Requests that are Kubernetes objects: they are filed, changed and ended as the objects in a cluster are."""

"""Requests that are Kubernetes objects: sent to the hub, with their status written back."""

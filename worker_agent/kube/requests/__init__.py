"""Requests that are Kubernetes objects: they are carried to the hub, and their status is written back."""

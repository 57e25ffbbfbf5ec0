"""Sends requests that are Kubernetes objects to the hub, and writes their status back."""

"""Pods of workspaces, grouped into the workloads that people started."""

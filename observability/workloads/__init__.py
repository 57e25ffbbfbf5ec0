"""Groups pods of workspaces into the workloads that people started."""

"""Workloads, one workload, and pods, for both portals: what a reader may know is the selectors' matter."""

"""Shows workloads, one workload, and pods in both portals: what a reader may know is the selectors' matter."""

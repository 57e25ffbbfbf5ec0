"""Files, changes and ends requests that are Kubernetes objects, as their objects are made, changed and deleted."""

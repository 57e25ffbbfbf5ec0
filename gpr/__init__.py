"""Keeps GPU Provision Requests (GPRs). Planning is in `planner`, Kubernetes in `worker_agent`, HTML in the portals."""

"""Reads long courses of GPUs from the Prometheus of their cluster."""

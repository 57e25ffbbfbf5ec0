"""Long courses of GPUs, read from the Prometheus of their cluster."""

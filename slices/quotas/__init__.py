"""Quotas limit how many GPUs a project or a workspace holds at once, or guarantee them."""

"""Measures the planner, the services of the hub, and its pages at size."""

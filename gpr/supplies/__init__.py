"""Supplies: nodes that can be ordered, and the orders that the plan makes."""

"""Finds the owner of a GPR for notices, and records Events that no act causes, such as a box that ends soon."""

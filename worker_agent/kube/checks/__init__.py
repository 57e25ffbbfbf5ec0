"""Runs entry and exit checks as Jobs on nodes, and judges their output."""

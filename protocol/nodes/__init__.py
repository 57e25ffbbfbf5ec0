"""Describes nodes and their GPUs, the steps and checks of entry and exit, and drift."""

"""Computes what budgets of GPU-hours have left, and warns before they are spent."""

"""Builds context objects of the pages on people, workspace requests, quotas and budgets."""

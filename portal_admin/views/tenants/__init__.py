"""Serves the pages on people, workspace requests, quotas and budgets."""

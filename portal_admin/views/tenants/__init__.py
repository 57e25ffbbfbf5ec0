"""Views on people, workspace requests, quotas and budgets."""

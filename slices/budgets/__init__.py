"""Budgets limit how many GPU-hours a project or a workspace uses in a period."""

"""Policies of the platform, of projects and of workspaces: each sets what it wants and inherits the rest; every change makes a version."""

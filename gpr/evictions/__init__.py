"""Evictions: running boxes end early, so that another request can start or because an administrator decides so."""

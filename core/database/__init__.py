"""Faster reads from PostgreSQL."""

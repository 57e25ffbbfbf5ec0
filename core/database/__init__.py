"""Reads faster from PostgreSQL."""

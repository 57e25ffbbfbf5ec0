"""Talks with the hub."""

"""Keeps people: their roles, their access, their sessions, and the first administrator."""

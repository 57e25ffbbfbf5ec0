"""Keeps the append-only Event log, and sends hints between processes.

Must not live here: the changes themselves.
"""

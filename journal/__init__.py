"""The append-only Event log, and hints between processes.

Must not live here: the changes themselves.
"""

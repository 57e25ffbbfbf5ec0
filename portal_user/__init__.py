"""Serves the users' pages.

Must not live here: rules. Pages call the same services as the API.
"""

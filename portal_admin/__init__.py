"""Serves the administrators' pages.

Must not live here: rules. Pages call the same services as the API.
"""

"""The Python SDK and the `egs` command, for whoever drives EGS from outside.

Lives here: a client of the REST API. Must not live here: Django, or anything of the hub; it knows the API and nothing else.
"""

"""The Python SDK and the `egs` command, for programs and people outside the hub. Still empty.

Lives here: a client of the REST API. Must not live here: Django, or anything of the hub; it knows the API and nothing else.
"""

"""Manifests are documents that say how objects of EGS shall be. docs/how-to/manifests.md

Every object is read and written through the REST API, called in this process and in one transaction. So permissions, checks and Events
are those of the API; nothing is checked a second time here.
"""

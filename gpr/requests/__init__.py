"""Requests: what can be asked for, estimates, submit, edit, cancel, extend, release, and the REST endpoints of a request."""

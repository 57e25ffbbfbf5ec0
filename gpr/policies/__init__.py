"""Requests that break a policy, as it is or as it would be, and the REST endpoints of policies."""

"""Finds requests that break a policy, as it is or as it would be, and serves policies by REST."""

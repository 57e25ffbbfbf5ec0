"""Requests that break a policy wait for an approver: who may decide, until when, and what happens when nobody does."""

"""Promises: their outcomes, what past promises teach about new ones, and the published figures."""

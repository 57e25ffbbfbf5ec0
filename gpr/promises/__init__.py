"""Promises: how each promise turned out, what past promises teach about new ones, and the published figures."""

"""Alerts, their rules and silences, as both portals show them."""

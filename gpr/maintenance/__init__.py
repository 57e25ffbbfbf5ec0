"""Announces maintenance windows and shows their effects on promises and boxes."""

"""Requests that start after another one: which one they may name, and what becomes of them when that one ends."""

"""Lets a request start after another one: which one it may name, and what becomes of it when that one ends."""

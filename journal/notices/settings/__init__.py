"""Keeps what people want to be told."""

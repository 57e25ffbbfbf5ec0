"""Keeps request templates, and those that agents use for waiting GPU pods."""

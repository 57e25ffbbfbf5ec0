"""Thin: who may, which page, which answer."""

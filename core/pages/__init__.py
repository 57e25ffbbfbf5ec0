"""Holds the parts of pages: axes, strips, tables, and words. It imports no app."""

"""Builds context objects of templates. Rendering runs no query."""

"""Views decide who may see which page."""

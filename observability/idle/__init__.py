"""Finds boxes whose GPUs do nothing. Readings that are missing or old never count as idleness."""

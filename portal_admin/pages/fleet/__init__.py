"""Builds context objects of the pages on clusters, nodes, checks, maintenance and supplies."""

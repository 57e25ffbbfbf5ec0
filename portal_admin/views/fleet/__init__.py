"""Serves the pages on clusters, nodes, checks, maintenance and supplies."""

"""Views on clusters, nodes, checks, maintenance and supplies."""

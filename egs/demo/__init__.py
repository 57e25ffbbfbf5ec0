"""Makes the demo: tenants, simulated clusters with real agents, and, unless it is bare, a company at work."""

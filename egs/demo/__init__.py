"""What `manage.py demo` makes: tenants, simulated clusters with real agents, and, unless it is to be bare, a company at work."""

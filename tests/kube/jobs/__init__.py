"""Jobs of GPRs on a real API server."""

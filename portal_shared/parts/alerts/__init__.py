"""Shows alerts, their rules and silences in both portals."""

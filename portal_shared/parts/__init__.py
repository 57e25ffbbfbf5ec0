"""What pages of both portals show: requests, promises, budgets, measurements, lists in pages."""

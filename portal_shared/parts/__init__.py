"""Has parts of pages of both portals: requests, promises, budgets, measurements, lists in pages."""

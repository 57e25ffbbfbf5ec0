"""Entry and exit checks: their Jobs on nodes, and how the output is judged."""

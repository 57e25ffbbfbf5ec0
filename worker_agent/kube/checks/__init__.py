"""Entry and exit checks: what each measures, the Jobs that run on a node, and how their output is judged."""

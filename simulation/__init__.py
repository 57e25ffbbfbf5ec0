"""A job list on a simulated clock: the real planner, and the policies that it is measured against.

Lives here: joblist (nodes, jobs and quotas from files), failures (nodes that fail), replay (the simulated clock and its schedulers),
baselines (FIFO, EASY and the like), estimators (other ways to foretell a start), report (what came of it).
Must not live here: Django, a database, a clock. Same lists, same report, but for the times that planning took.
"""

"""Replays job lists on a simulated clock, with the real planner and with reference policies.

Must not live here: Django, a database, a clock. The same lists give the same report, except for planning times.
"""

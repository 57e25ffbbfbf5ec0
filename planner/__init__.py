"""The pure planner computes plans and offers from a snapshot.

Must not live here: Django, a database, a clock, a random number. The same snapshot gives the same plan, byte for byte.

Units: seconds since the Unix epoch (`_s`), counts of GPUs and nodes. The caller chooses ids.
"""

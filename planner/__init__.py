"""The pure core: `plan(snapshot) -> Plan` and `offers(snapshot, candidate) -> offers`.

snapshot: what is. plan: what shall be. engine: the planner. offers: what a newcomer would get. explain, reasons: why.
feasibility: what could ever start. kernels, compile: functions that numba compiles.
capacity: what is free over time. board: the working state. promises: slots, slack and their proof. sharing: who gives way to whom.
Must not live here: Django, a database, a clock, a random number. The same snapshot gives the same plan, byte for byte.

Units: whole seconds since the Unix epoch (`_s`), GPUs and nodes as counts. Ids are strings that the caller chose.
"""

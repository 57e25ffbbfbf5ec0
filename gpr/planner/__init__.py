"""The pure core: `plan(snapshot) -> Plan` and `offers(snapshot, candidate) -> offers`.

Lives here: snapshot (what is), plan (what shall be), profile (free GPUs over time), engine (the planner), explain (sentences),
baselines (the policies of the field that we replay beside ours), replay (a job list on a simulated clock).
Must not live here: Django, a database, a clock, a random number. Same snapshot, same plan, byte for byte.

Units: whole seconds since the Unix epoch (`_s`), GPUs and nodes as counts. Ids are strings that the caller chose.
"""

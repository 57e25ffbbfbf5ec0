"""The pure core: `plan(snapshot) -> Plan` and `offers(snapshot, candidate) -> offers`.

Lives here: snapshot (what is), plan (what shall be), engine (the planner), explain (sentences), limits (what could ever start);
beneath the engine profile (a node's free GPUs over time), witness (all boxes on nodes and in slices), waiting, board (its working
state), repair, freed and improve, reasons; beside it packing (parts of nodes, without time), and replay, baselines, joblist and
report (a job list on a simulated clock).
Must not live here: Django, a database, a clock, a random number. Same snapshot, same plan, byte for byte.

Units: whole seconds since the Unix epoch (`_s`), GPUs and nodes as counts. Ids are strings that the caller chose.
"""

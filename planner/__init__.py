"""The pure core: `plan(snapshot) -> Plan` and `offers(snapshot, candidate) -> offers`.

Lives here: snapshot (what is), plan (what shall be), engine (the planner), explain (sentences), limits (what could ever start);
beneath the engine lines (step functions), ground (nodes and limits, and where a box fits), passes (the moves of the policy; these
three have kernels, which compile compiles beforehand), waiting, board (the working state), pace (slack of newcomers), bands (p50 and
p90), repair, edits (what its owner has changed), reasons; beside it bookings (where else one would fit).
Must not live here: Django, a database, a clock, a random number. Same snapshot, same plan, byte for byte.

Units: whole seconds since the Unix epoch (`_s`), GPUs and nodes as counts. Ids are strings that the caller chose.
"""

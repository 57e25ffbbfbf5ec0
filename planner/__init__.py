"""The pure core: `plan(snapshot) -> Plan` and `offers(snapshot, candidate) -> offers`.

Must not live here: Django, a database, a clock, a random number. The same snapshot gives the same plan, byte for byte.

Units: seconds since the Unix epoch (`_s`), counts of GPUs and nodes. Ids are strings that the caller chose.
"""

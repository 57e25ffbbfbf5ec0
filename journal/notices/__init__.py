"""Notices: who is told of which Event, in the bell and over channels.

Must not live here: membership and ownership (slices and gpr register in `audience`), pages.
"""

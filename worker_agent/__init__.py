"""The agent carries out in its cluster what the hub decided. Must not live here: Django, or a decision about who gets which node."""

VERSION = "1.0.0"

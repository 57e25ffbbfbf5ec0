"""The agent of a worker cluster. Must not live here: Django, or a decision about who gets which node."""

VERSION = "1.0.0"

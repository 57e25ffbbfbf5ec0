"""The agent that runs in each worker cluster: it turns the hub's desired set into isolated, checked nodes, and back.

Lives here: the protocol (the one contract with the hub), the core (what to do next), drivers (how it is done), the
process. Must not live here: Django, the hub's models, a decision about who gets what: the hub decides, the agent makes
it true.
"""

VERSION = "1.0.0"

"""How an agent talks to its hub: transport, registration, sync, events, lists."""

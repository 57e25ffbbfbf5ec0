"""Defines the dialog of an agent with its hub: transport, registration, sync, events, lists."""

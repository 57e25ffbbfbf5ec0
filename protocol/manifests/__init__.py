"""Defines the language of manifests: the hub applies them, and the client checks them without a hub."""

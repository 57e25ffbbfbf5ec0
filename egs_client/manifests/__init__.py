# `make client` writes this file. Do not edit it.
"""Defines the language of manifests: the hub applies them, and the client checks them without a hub."""

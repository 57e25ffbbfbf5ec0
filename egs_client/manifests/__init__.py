# `make client` writes this file. Do not edit it.
"""The language of manifests: the hub applies them, and the client checks them without a hub."""

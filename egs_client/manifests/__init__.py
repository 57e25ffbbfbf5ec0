# `make client` writes this file. Do not edit it.
"""What a manifest may say: the hub applies manifests, and the client checks them without a hub."""

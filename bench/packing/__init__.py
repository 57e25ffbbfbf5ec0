"""Packs requests: which node, and which GPU on it, takes a request for a part of a node, so that little is left that nobody can use.

Lives here: model (nodes, requests, demand), kernels (what a placement costs under each policy), worths (shadow prices of demand and
CPU, which our own policy places by), packer (places one request after the other).
Must not live here: time. A placement is for now; when something starts and ends is the engine's.

Units: CPU in thousandths of a core, memory in MiB, a share of a GPU in thousandths (1000 is a whole one).
"""

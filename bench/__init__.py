"""Benchmarks: `make bench`, or `python -m bench NAME…`. Each prints ours beside a peer's figure where there is one.

They measure and never fail on a figure. What each compares, and what it does not, stands in bench/README.md.
"""

"""Has the parts that the pages of both portals share.

Must not live here: pages of one portal, rules (services), queries (selectors).
"""

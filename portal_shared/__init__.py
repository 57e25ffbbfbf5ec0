"""What the pages of both portals share: who is signed in, the shell around a page, words, drawings, live hints.

Must not live here: a page of one portal (portal_user, portal_admin), a rule (services), a query of one subject (selectors).
"""

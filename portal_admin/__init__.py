"""The administrator's pages: thin views, context objects, forms, tables.

Lives here: queue, inventory, clusters, slices, schedule as an administrator steers them. Must not live here: a rule (see portal_user).
"""

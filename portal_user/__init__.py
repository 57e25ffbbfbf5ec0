"""The user's pages: thin views, context objects, forms, tables.

Lives here: what a member of slices sees and submits. Must not live here: a rule; pages call the services that the API calls.
"""

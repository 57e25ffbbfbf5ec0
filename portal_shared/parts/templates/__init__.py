"""Shows request templates: those of workspaces in the users' portal, of the platform in the administrators'."""

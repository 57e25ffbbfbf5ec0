"""Pages of request templates: of workspaces in the users' portal, of the platform in the administrators'."""

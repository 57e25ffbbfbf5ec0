"""People ask for a workspace; an administrator approves, with changes, or refuses. Approval sets the workspace up in one transaction."""

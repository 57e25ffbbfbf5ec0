"""Users, API tokens and sign-in; not: agents' credentials."""

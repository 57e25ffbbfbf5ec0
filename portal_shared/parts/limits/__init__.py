"""Questions of both portals that change what limits a workspace: its policy, its budgets and its end."""

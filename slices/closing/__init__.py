"""Archives, removes and restores workspaces and projects. gpr/closing ends their GPRs."""

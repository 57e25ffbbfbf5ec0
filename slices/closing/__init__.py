"""Archives, removes and restores workspaces and projects. What ends their GPRs is in gpr/closing."""

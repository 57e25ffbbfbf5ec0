"""Who owns a GPR that a notice is about, and Events of what only time brings about."""

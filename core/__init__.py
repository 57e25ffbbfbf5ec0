"""What every app of the hub stands on: the clock, locks, errors, and the kits for REST endpoints and pages. It imports no app."""

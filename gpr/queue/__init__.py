"""Queue positions, explanations of waits, and administrators' decisions."""

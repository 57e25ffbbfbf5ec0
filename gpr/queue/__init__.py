"""Shows queue positions, explains waits, and carries out administrators' decisions."""

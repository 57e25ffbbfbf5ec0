"""Jobs are what runs in the box of a GPR, from filing to its result."""

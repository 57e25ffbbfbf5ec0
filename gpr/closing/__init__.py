"""What archiving or removing a workspace or a project ends, and the steps by which ticks end it."""

"""The tick loads a snapshot, plans the queue, stores the plan and starts what can start."""

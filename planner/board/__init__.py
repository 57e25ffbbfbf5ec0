"""The planner's working state: who runs, who waits and where, and the compiled passes that start boxes."""

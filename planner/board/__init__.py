"""Holds the planner's working state and the compiled passes that start boxes."""

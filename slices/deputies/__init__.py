"""Deputies decide for a time on requests that wait for the approval of who named them."""

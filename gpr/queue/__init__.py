"""The queue: the age and the place of a request, why it waits, and what an administrator changes about it."""

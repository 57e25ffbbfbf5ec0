"""The API server: calls, local copies of lists, objects and kinds, the lease of the agent, and what was installed beside it."""

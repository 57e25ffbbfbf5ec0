"""Who is who: users, API tokens, roles, login.

Lives here: User, ApiToken, what a bearer token proves, idempotency of creations per user.
Must not live here: what a user may see of slices or GPRs (slices, gpr), agents' credentials (inventory; it shares `tokens`).
"""

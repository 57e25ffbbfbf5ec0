"""Proposes moves of running boxes that free whole nodes."""

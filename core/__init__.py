"""Holds code that all apps share. It imports no app."""

"""Holds code that all REST endpoints share. It imports no app."""

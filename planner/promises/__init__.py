"""Promises: how late a newcomer may be promised to start, stored slots put back and repaired, and the proof that all are kept."""

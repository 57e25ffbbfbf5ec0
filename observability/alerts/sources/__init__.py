"""Loads values of signals. Each source answers for all its rules with a fixed number of queries.

It returns what may be beyond a rule's level, and every subject of an open alert that is still there (its value None: not known now).
"""

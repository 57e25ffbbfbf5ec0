"""Builds requests and reads answers, and sends nothing: both halves of the SDK use it."""

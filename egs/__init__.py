"""Holds settings, URLs, the ASGI and Celery applications, the single-process runner and the demo. No app imports it."""

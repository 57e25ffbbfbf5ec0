"""Settings, URLs, the ASGI and Celery applications, the single-process runner, the demo. No app imports it."""

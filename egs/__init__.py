"""The project: settings, addresses, the ASGI and Celery applications, the runner for one process, and the demo. No app imports it."""

from django.apps import AppConfig
from django.conf import settings


class EgsConfig(AppConfig):
    """The project as an app: it holds the commands that start things (`demo`, `egs_run`), and no model."""

    name = "egs"

    def ready(self) -> None:
        if settings.EGS_REDIS_URL:
            # Makes the Celery app the current one, so that whoever changes something can send the tick.
            from egs import celery  # noqa: F401

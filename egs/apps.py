import gc

from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created

from core.database.postgres_jit import switch_jit_off
from core.database.postgres_times import read_times_fast
from core.rest.sentences import speak_plainly


class EgsConfig(AppConfig):
    """Holds the commands that start the project; it has no models."""

    name = "egs"

    def ready(self) -> None:
        # A plan reads thousands of rows into objects without reference cycles. With Python's default thresholds the garbage collector
        # took half of the time of a submit beside 4,000 boxes.
        gc.set_threshold(50_000, 20, 20)
        speak_plainly()
        connection_created.connect(read_times_fast)
        connection_created.connect(switch_jit_off)
        if settings.EGS_REDIS_URL:
            # The import makes this the current Celery app, so that hints can send the tick task.
            from egs import celery  # noqa: F401

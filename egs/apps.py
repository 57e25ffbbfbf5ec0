import gc

from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created

from core.postgres_times import read_times_fast


class EgsConfig(AppConfig):
    """The project as an app: it holds the commands that start things (`demo`, `egs_run`), and no model."""

    name = "egs"

    def ready(self) -> None:
        # A plan reads thousands of rows into objects that no circle holds. At Python's own pace their making alone would have all other
        # objects looked through again and again: half of the time of a submit beside 4,000 boxes.
        gc.set_threshold(50_000, 20, 20)
        connection_created.connect(read_times_fast)
        if settings.EGS_REDIS_URL:
            # Makes the Celery app the current one, so that whoever changes something can send the tick.
            from egs import celery  # noqa: F401

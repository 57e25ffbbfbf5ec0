"""The Celery app of the beat wakes the workers by the schedule in the settings. It loads no Django apps, which halves its memory."""

import os
from logging.config import dictConfig
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
app = Celery("egs", fixups=())
app.config_from_object("django.conf:settings", namespace="CELERY")


@setup_logging.connect
def _as_the_settings_have_it(**_: Any) -> None:
    from django.conf import settings

    dictConfig(settings.LOGGING)

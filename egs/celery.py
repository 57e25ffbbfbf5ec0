"""The Celery app of the production profile. Tasks are three lines that call services; beat only wakes."""

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
app = Celery("egs")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Celery sets up a log of its own unless somebody listens here; Django has set up ours."""

"""The Celery app of the production profile. Tasks are three lines that call services; beat only wakes."""

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from kombu.transport.redis import Channel

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
app = Celery("egs")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# A wake-up that was taken and not begun when Redis went away is late anyway. kombu 5.7 would give it back over a connection that it has
# closed, and the worker would end: AttributeError, 'NoneType' object has no attribute 'hostname'.
Channel.do_restore = False


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Celery sets up a log of its own unless somebody listens here; Django has set up ours."""

"""Configures the Celery app of the production profile."""

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from kombu.transport.redis import Channel

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
# Django's checks would load all pages and the whole API, which neither a worker nor the beat serves.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")
app = Celery("egs")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# When Redis goes away, kombu 5.7 would return prefetched messages over a closed connection, and the worker would end with
# AttributeError: 'NoneType' object has no attribute 'hostname'. A wake-up that is lost is harmless.
Channel.do_restore = False


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Celery configures logging unless this signal has a receiver."""

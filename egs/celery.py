"""The Celery app of the production profile. Tasks are three lines that call services; beat only wakes."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "egs.settings")
app = Celery("egs")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

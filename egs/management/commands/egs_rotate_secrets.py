from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from gpr.jobs.services import tokens_rotate
from journal.notices.channels.services import secrets_rotate
from observability.prometheus.services import prometheus_secrets_rotate


class Command(BaseCommand):
    help = (
        "Encrypts all secrets (channels, notebooks, Prometheus) with the newest key of EGS_SECRET_KEYS, so that older keys can be removed."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        done_count, lost_count = map(sum, zip(secrets_rotate(), tokens_rotate(), prometheus_secrets_rotate(), strict=True))
        print(f"{done_count} encrypted anew, {lost_count} left, since no key reads them.")

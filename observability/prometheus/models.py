from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from core.outbound import URL_MAX_CHARS
from inventory.models import Cluster

BEYOND_LEAST_S, BEYOND_S, BEYOND_MOST_S = 3600, 7 * 86_400, 90 * 86_400
BEYOND_LEAST: Final = timedelta(seconds=BEYOND_LEAST_S)
MATCHERS_MAX_CHARS: Final = 200
CA_MAX_CHARS: Final = 20_000
USERNAME_MAX_CHARS: Final = 200


class Auth(models.TextChoices):
    NONE = "none", "None"
    BEARER = "bearer", "A bearer token"
    BASIC = "basic", "A user name and a password"


@column_checks
class PrometheusSource(models.Model):
    """A cluster without one has its long courses from EGS alone."""

    cluster = models.OneToOneField(Cluster, primary_key=True, on_delete=models.CASCADE, related_name="prometheus")
    url = models.CharField(max_length=URL_MAX_CHARS, help_text="Of its HTTP API, without /api/v1.")
    auth = models.CharField(max_length=6, choices=Auth.choices, default=Auth.NONE)
    username = models.CharField(max_length=USERNAME_MAX_CHARS, blank=True)
    sealed = models.TextField(blank=True, help_text="The token or password, encrypted.")
    ca_pem = models.TextField(blank=True, max_length=CA_MAX_CHARS, help_text="Certificates to trust; empty: what the system trusts.")
    matchers = models.CharField(max_length=MATCHERS_MAX_CHARS, blank=True, help_text='Labels of its series, as cluster="aurora".')
    beyond_s = models.PositiveIntegerField(default=BEYOND_S, help_text="Ranges that begin longer ago than this come from it.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(beyond_s__range=(BEYOND_LEAST_S, BEYOND_MOST_S)), name="prometheus_bound_in_range"),
            models.CheckConstraint(
                condition=Q(auth="none", sealed="") | (~Q(auth="none") & ~Q(sealed="")), name="prometheus_secret_if_used"
            ),
        ]

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def beyond(self) -> timedelta:
        return timedelta(seconds=self.beyond_s)

"""Filters the lists of GPRs, quotas, supplies and Events."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from accounts.authentication import actor_of
from accounts.models import IdempotentCreation
from core.rest.filters import KnownFilter, Moment, PersonFilter, ReferenceFilter, Whole, Words, YesNo
from core.rest.references import is_object
from gpr.models import ENDED, Eviction, EvictionVictim, GprState, GprTemplate
from gpr.requests.selectors import gprs_visible_to, templates_of
from inventory.models import SupplyOrderState
from inventory.selectors import clusters_visible_to, nodes_known_to
from journal.models import Severity
from slices.models import PRIORITY_MAX, PRIORITY_MIN, Period
from slices.selectors import slices_visible_to


class GprFilter(filters.FilterSet):
    name = filters.CharFilter(lookup_expr="icontains", label="Part of the name.")
    state = Words(choices=GprState.choices)
    slice = ReferenceFilter("slice")
    cluster = ReferenceFilter("cluster", label="The cluster of its nodes.")
    owner = PersonFilter("owner", label="Id or name, or `me`.")
    priority_min = Whole("priority", lookup_expr="gte", least=PRIORITY_MIN, most=PRIORITY_MAX)
    priority_max = Whole("priority", lookup_expr="lte", least=PRIORITY_MIN, most=PRIORITY_MAX)
    is_booking = YesNo(pick=lambda is_true: Q(is_booking=is_true))
    ended = YesNo(pick=lambda is_true: Q(state__in=ENDED) if is_true else ~Q(state__in=ENDED))
    idempotency_key = filters.CharFilter(method="by_key", label="What your POST with this key has made, by itself or as a job.")

    def by_key(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        made = IdempotentCreation.objects.filter(user=actor_of(self.request), key=value, route__in=("gprs", "jobs", "notebooks")).values(
            "object_id"
        )
        return rows.filter(Q(pk__in=made) | Q(job__pk__in=made))


class BookingSeriesFilter(filters.FilterSet):
    slice = ReferenceFilter("slice")
    canceled = YesNo(pick=lambda is_true: Q(canceled_at__isnull=not is_true))


class TemplateHome(ReferenceFilter):
    def filter(self, rows: QuerySet[GprTemplate], value: str) -> QuerySet[GprTemplate]:
        return templates_of(rows, is_object(value, path="slice")) if value else rows


class TemplateFilter(filters.FilterSet):
    name = filters.CharFilter(lookup_expr="icontains", label="Part of the name.")
    slice = TemplateHome("slice", label="What its requests may start from: its own templates, and those of the platform.")
    cluster = ReferenceFilter("cluster", label="Templates for this cluster only, without those for all clusters.")
    is_default = YesNo(pick=lambda is_true: Q(is_default=is_true))


class ProjectFilter(filters.CharFilter):
    def filter(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(is_object(value, path="project") | is_object(value, path="slice__project")) if value else rows


class QuotaFilter(filters.FilterSet):
    project = ProjectFilter(label="Id or name. Includes those of its slices.")
    slice = ReferenceFilter("slice", label="Id or name.")
    shape = filters.CharFilter()


class BudgetFilter(QuotaFilter):
    period = Words(choices=Period.choices)


class EvictionFilter(filters.FilterSet):
    gpr = filters.CharFilter(method="by_gpr", label="Id or name of the beneficiary or of a victim.")
    since = Moment("made_at", lookup_expr="gte")

    def by_gpr(self, rows: QuerySet[Eviction], name: str, value: str) -> QuerySet[Eviction]:
        meant = gprs_visible_to(actor_of(self.request)).filter(is_object(value)).values("pk")
        victims = EvictionVictim.objects.filter(gpr__in=meant)
        return rows.filter(Q(gpr__in=meant) | Q(pk__in=victims.values("eviction")))


class EventFilter(filters.FilterSet):
    gpr = KnownFilter("gpr_id", known=gprs_visible_to)
    slice = KnownFilter("slice_id", known=slices_visible_to)
    node = KnownFilter("node_id", known=nodes_known_to)
    cluster = KnownFilter("cluster_id", known=clusters_visible_to)
    kind = filters.CharFilter()
    severity = Words(choices=Severity.choices)
    since = Moment("at", lookup_expr="gte")


class MaintenanceFilter(filters.FilterSet):
    cluster = ReferenceFilter("cluster")
    node = ReferenceFilter("node")
    canceled = YesNo(pick=lambda is_true: Q(canceled_at__isnull=not is_true))
    # `from` is a word of Python's.
    vars()["from"] = Moment("ends_at", lookup_expr="gt", label="Ends after this time.")
    to = Moment("starts_at", lookup_expr="lt", label="Starts before this time.")


class SupplyFilter(filters.FilterSet):
    cluster = ReferenceFilter("cluster")
    shape = filters.CharFilter()


class SupplyOrderFilter(filters.FilterSet):
    supply = ReferenceFilter("supply")
    cluster = ReferenceFilter("supply__cluster")
    gpr = ReferenceFilter("gpr")
    state = Words(choices=SupplyOrderState.choices)

"""Serves the REST endpoints of `usage/`."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import StrictSerializer, Text
from core.rest.filters import Day, PersonFilter, ReferenceFilter, day_given
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.pagination import OnePage
from core.rest.views import ApiViewSet
from gpr.models import ShapePrice, UsageDay
from gpr.usage.selectors import (
    DIMENSIONS,
    STEPS,
    USAGE_ORDER,
    Usage,
    league,
    of_workload,
    price_for,
    prices_visible_to,
    usage_by,
    usage_visible_to,
)
from gpr.usage.services import PRICE_MOST, price_delete, price_set


class DaysFilter(filters.FilterSet):
    since = Day("day", lookup_expr="gte", label="First day, in UTC. By default the first of this month.")
    until = Day("day", lookup_expr="lt", label="The day after the last one.")


class UsageFilter(DaysFilter):
    by = filters.ChoiceFilter(choices=[(name, name) for name in DIMENSIONS], method="as_it_is", label="By default slice.")
    step = filters.ChoiceFilter(choices=[(name, name) for name in STEPS], method="as_it_is", label="By default total.")
    project = ReferenceFilter("slice__project")
    slice = ReferenceFilter("slice")
    owner = PersonFilter("gpr__owner", label="The person who filed the GPR: id or name, or `me`.")
    gpr = ReferenceFilter("gpr")
    workload = filters.CharFilter(method="by_workload", label="Id of the workload, or its kind and name as in rows by workload.")
    shape = filters.CharFilter("shape")
    cluster = ReferenceFilter("cluster")

    def as_it_is(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows

    def by_workload(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(of_workload(value))


class UsageSerializer(OutputSerializer[Any]):
    """GPU-hours: held is used, wasted and unmeasured time."""

    id = serializers.CharField(
        source="row.key",
        help_text="Id of the object by which rows are grouped; of a shape its name; of what no workload had that of the slice.",
    )
    name = serializers.CharField(source="row.name")
    of = serializers.CharField(source="row.of", help_text="A slice's project, a GPR's or workload's slice; else empty.")
    since = serializers.DateField(source="row.since", help_text="First day of the step.")
    held_hours = serializers.FloatField(source="usage.held_hours", help_text="From the reservation of GPUs to their release.")
    used_hours = serializers.FloatField(source="usage.used_hours", help_text="Kernels ran.")
    wasted_hours = serializers.FloatField(source="usage.wasted_hours", help_text="No kernel ran in an open box.")
    unmeasured_hours = serializers.FloatField(source="usage.unmeasured_hours", help_text="Entry, exit, and times without readings.")
    efficiency = serializers.FloatField(source="usage.efficiency", allow_null=True, help_text="Used of measured; null: not measured.")
    cost = serializers.DecimalField(source="usage.cost", max_digits=20, decimal_places=2, help_text="Held hours at the day's price.")
    unpriced_hours = serializers.FloatField(source="usage.unpriced_hours", help_text="Held while the shape had no price.")
    currency = serializers.CharField()


class UsageViewSet(ApiViewSet[Any]):
    queryset = UsageDay.objects.none()
    serializer_class = UsageSerializer
    filterset_class = UsageFilter
    ordering = USAGE_ORDER

    def list(self, request: Request) -> Response:
        """Count GPU-hours, those with most first. A member counts those of his slices."""
        rows = self.filter_queryset(usage_visible_to(actor_of(request)))
        asked = request.query_params
        since = day_given(asked.get("since")) or self.now.date().replace(day=1)
        page = self.paginate_queryset(usage_by(rows, by=asked.get("by") or "slice", since=since, step=asked.get("step") or "total")) or []
        told = [{"row": row, "usage": Usage.of(row), "currency": settings.EGS_CURRENCY} for row in page]
        return self.get_paginated_response(UsageSerializer(told, many=True).data)


class PriceSerializer(ModelOutputSerializer[ShapePrice]):
    name = serializers.CharField(source="shape")
    currency = serializers.SerializerMethodField()

    class Meta:
        model = ShapePrice
        fields = ["id", "name", "shape", "from_day", "gpu_hour_price", "currency", "set_at", "set_by"]

    def get_currency(self, price: ShapePrice) -> str:
        return str(settings.EGS_CURRENCY)


@extend_schema_field({"type": "string", "format": "decimal", "pattern": r"^([0-9]{1,6}(\.[0-9]{0,4})?|1000000(\.0{0,4})?)$"})
class PriceField(serializers.DecimalField):
    """Up to PRICE_MOST."""


class PriceSet(StrictSerializer):
    shape = Text(max_length=63)
    gpu_hour_price = PriceField(max_digits=11, decimal_places=4, min_value=0, max_value=PRICE_MOST)
    from_day = serializers.DateField(required=False, help_text="In UTC; by default today. It may be past.")


class PriceViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[ShapePrice]):
    """Prices of GPU-hours by shape, each from a day until the shape's next price."""

    queryset = ShapePrice.objects.none()
    serializer_class = PriceSerializer
    ordering = ("shape", "-from_day")
    admin_actions = ("create", "destroy")

    def get_queryset(self) -> QuerySet[ShapePrice]:
        return prices_visible_to(actor_of(self.request))

    def get_object(self) -> ShapePrice:
        return price_for(actor_of(self.request), self.kwargs["pk"])

    @extend_schema(request=PriceSet, responses={201: PriceSerializer})
    def create(self, request: Request) -> Response:
        """Set a shape's price from a day on. It replaces the price that begins on the same day; costs of past days follow it."""
        data = self.body(PriceSet)
        from_day = data.get("from_day", self.now.date())
        made = price_set(shape=data["shape"], price=data["gpu_hour_price"], from_day=from_day, actor=actor_of(request), now=self.now)
        return Response(PriceSerializer(made).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a price; the one before it holds again."""
        price_delete(price=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


class LeaguePlaceSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField(help_text="Id of the slice.")
    name = serializers.CharField(help_text="Name of the slice.")
    project = serializers.CharField()
    place = serializers.IntegerField(help_text="Among the slices of the project.")
    efficiency = serializers.FloatField(help_text="Share of the measured GPU time in which kernels ran.")
    measured_hours = serializers.FloatField()


class LeagueViewSet(ApiViewSet[Any]):
    queryset = UsageDay.objects.none()
    serializer_class = LeaguePlaceSerializer
    filterset_class = DaysFilter
    pagination_class = OnePage

    def list(self, request: Request) -> Response:
        """Compare the slices of each project by how much of their GPU time they use, the most efficient first.

        A member sees the places of his own slices, an administrator of a project those of all its slices. Projects may stay out of it.
        """
        self.filter_queryset(self.get_queryset())  # validates the query parameters
        asked = request.query_params
        since = day_given(asked.get("since")) or self.now.date().replace(day=1)
        until = day_given(asked.get("until")) or date.max
        places = league(actor_of(request), since=since, until=until)
        return self.get_paginated_response(LeaguePlaceSerializer(places, many=True).data)

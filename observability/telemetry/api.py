"""Serves `hotspots/` and `gpus/{ref}/metrics/`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import StrictSerializer
from core.rest.filters import ReferenceFilter
from core.rest.nested import nested
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.views import ApiViewSet
from inventory.api import HolderSerializer
from inventory.models import Gpu
from observability.models import LEVELS, LatestReading
from observability.telemetry.selectors import View, course_of, gpu_known_to, gpus_with_readings, in_view, reading_of
from protocol.gpus.telemetry import METRICS, SERIES, Metric

STEPS: Final = [int(model.STEP.total_seconds()) for model in LEVELS]
RANGE_MAX: Final = timedelta(days=400)
EARLIEST_YEAR: Final = 2000


def _metric_fields(metrics: Iterable[Metric]) -> dict[str, serializers.IntegerField]:
    return {metric.name: serializers.IntegerField(allow_null=True, help_text=f"In {metric.unit}.") for metric in metrics}


class ReadingSerializer(ModelOutputSerializer[LatestReading]):
    """Shows null for what was not measured. Members are told none of the counts that began before their box."""

    vars().update(_metric_fields(METRICS))

    class Meta:
        model = LatestReading
        fields = ["at", *(metric.name for metric in METRICS)]


class HotspotSerializer(ModelOutputSerializer[Gpu]):
    name = serializers.CharField(source="uuid")
    cluster_id = serializers.UUIDField(source="node.cluster_id")
    cluster = serializers.CharField(source="node.cluster.name")
    shape = serializers.CharField(source="node.shape")
    is_stale = serializers.SerializerMethodField(help_text="There is no reading of the last minute.")
    reading = serializers.SerializerMethodField(help_text="The newest; null: there is none that the caller may see.")
    held_by = serializers.SerializerMethodField()

    class Meta:
        model = Gpu
        fields = ["id", "name", "index", "node_id", "node", "cluster_id", "cluster", "shape", "model", "is_stale", "reading", "held_by"]

    def get_is_stale(self, gpu: Any) -> bool:
        return not gpu.is_fresh

    @extend_schema_field(ReadingSerializer(allow_null=True))
    def get_reading(self, gpu: Any) -> Any:
        return nested(ReadingSerializer, reading_of(gpu))

    @extend_schema_field(HolderSerializer(allow_null=True))
    def get_held_by(self, gpu: Any) -> Any:
        return nested(HolderSerializer, gpu.held_by[0].reservation) if gpu.held_by else None


class HotspotFilter(filters.FilterSet):
    cluster = ReferenceFilter("node__cluster")
    node = ReferenceFilter("node")
    shape = filters.CharFilter("node__shape")
    view = filters.ChoiceFilter(choices=View.choices, method="in_view")

    def in_view(self, rows: QuerySet[Gpu], name: str, value: str) -> QuerySet[Gpu]:
        return rows.filter(in_view(value))


class HotspotViewSet(mixins.ListModelMixin, ApiViewSet[Any]):
    """Each row is the newest reading of a GPU: administrators see all, members those that their workspaces hold."""

    queryset = Gpu.objects.none()
    serializer_class = HotspotSerializer
    filterset_class = HotspotFilter
    ordering = ("-heat", "id")

    def get_queryset(self) -> QuerySet[Gpu]:
        return gpus_with_readings(actor_of(self.request), now=self.now)


class CourseQuery(StrictSerializer):
    since_at = serializers.DateTimeField(required=False, help_text="By default an hour before the end.")
    until_at = serializers.DateTimeField(required=False, help_text="By default now.")
    step_s = serializers.ChoiceField(
        choices=STEPS, required=False, help_text="The finest step wanted. Coarser ones answer where the finer one is no longer kept."
    )

    def validate_until_at(self, until: datetime) -> datetime:
        if until.year < EARLIEST_YEAR:  # no hour is before the first one of the calendar
            raise ValidationError("There are no readings of that time.")
        return until


class SpanSerializer(OutputSerializer[Any]):
    gpr_id = serializers.UUIDField()
    gpr = serializers.CharField()
    slice = serializers.CharField()
    since_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField(allow_null=True, help_text="Null: it holds the GPU now.")


class PointSerializer(OutputSerializer[Any]):
    at = serializers.DateTimeField(help_text="The begin of the step.")
    vars().update(_metric_fields(SERIES))


class CourseSerializer(OutputSerializer[Any]):
    step_s = serializers.IntegerField()
    since_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField()
    spans = SpanSerializer(many=True, help_text="Boxes that held the GPU in this time and that the caller may see.")
    points = PointSerializer(many=True)
    is_of_prometheus = serializers.BooleanField(help_text="The points come from the cluster's Prometheus.")
    why_own = serializers.CharField(help_text="Why they are EGS's own, though Prometheus was to be asked; empty: it was not to be.")


class GpuMetricsViewSet(ApiViewSet[Any]):
    queryset = Gpu.objects.none()
    serializer_class = CourseSerializer

    @extend_schema(parameters=[CourseQuery])
    def retrieve(self, request: Request, ref: str) -> Response:
        """Show what a GPU did. A member sees the times in which a box of his workspaces held it."""
        asked = CourseQuery(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        given: dict[str, Any] = asked.validated_data
        until = min(given.get("until_at", self.now), self.now)
        since = given.get("since_at", until - timedelta(hours=1))
        if not since < until <= since + RANGE_MAX:
            raise ValidationError({"since_at": [f"Must be before the end, by {RANGE_MAX.days} days at most."]})
        actor = actor_of(request)
        step_s = given.get("step_s")
        course = course_of(actor, gpu_known_to(actor, ref), since=since, until=until, step_s=step_s and int(step_s), now=self.now)
        return Response(CourseSerializer(course).data)

"""Serves `workloads/` and `pods/`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.filters import ReferenceFilter, Search, Words
from core.rest.nested import nested
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.references import id_of
from core.rest.views import ApiViewSet
from gpr.models import Gpr
from inventory.models import agent_is_live
from observability.telemetry.api import ReadingSerializer
from observability.workloads.models import Pod, Workload, WorkloadState
from observability.workloads.selectors import (
    PodView,
    WorkloadGpu,
    WorkloadView,
    gpus_of,
    pods_in,
    pods_matching,
    pods_visible_to,
    workload_for,
    workloads_in,
    workloads_matching,
    workloads_visible_to,
)
from observability.workloads.stragglers import stragglers_of

SEARCH_MAX_CHARS = 100


class CarrierSerializer(ModelOutputSerializer[Gpr]):
    class Meta:
        model = Gpr
        fields = ["id", "name", "state"]


class WorkloadSerializer(ModelOutputSerializer[Workload]):
    efficiency_percent = serializers.IntegerField(allow_null=True, help_text="GPU time used, of that held; null: nothing measured yet.")
    held_hours = serializers.FloatField(help_text="GPU-hours in which its GPUs were measured, since its start.")
    used_hours = serializers.FloatField(help_text="Hours of these in which kernels ran.")
    wasted_hours = serializers.FloatField(help_text="The others of these.")
    gprs = serializers.SerializerMethodField(help_text="Requests that carry its pods, or did; the newest first.")
    is_stale = serializers.SerializerMethodField(help_text="The agent of its cluster is silent: this is its last report.")

    class Meta:
        model = Workload
        fields = [
            *("id", "name", "kind", "api", "namespace", "slice_id", "slice", "cluster_id", "cluster", "state", "created_at", "ended_at"),
            *("model", "framework", "gprs", "pods_running", "pods_waiting", "gpus_held", "gpus_asked", "use_percent", "efficiency_percent"),
            *("held_hours", "used_hours", "wasted_hours", "temperature_c", "power_w", "straggler_count", "measured_at", "is_stale"),
        ]

    @extend_schema_field(CarrierSerializer(many=True))
    def get_gprs(self, row: Any) -> Any:
        return [nested(CarrierSerializer, gpr) for gpr in row.gprs.all()]

    def get_is_stale(self, row: Any) -> bool:
        return not agent_is_live(getattr(row.cluster, "agent", None), self.context["now"], within_s=settings.EGS_AGENT_UNREACHABLE_S)


class ConfigSerializer(OutputSerializer[Any]):
    image = serializers.CharField()
    arguments = serializers.ListField(child=serializers.CharField(), help_text="Values that look like secrets are hidden.")
    requests = serializers.DictField(child=serializers.CharField(), help_text="What the pod with most GPUs asks for.")
    parallelism = serializers.DictField(child=serializers.IntegerField(), help_text="How its work is divided, as far as arguments tell.")


class WorkloadGpuSerializer(OutputSerializer[WorkloadGpu]):
    id = serializers.UUIDField(source="gpu.pk")
    node = serializers.CharField(source="gpu.node.name")
    index = serializers.IntegerField(source="gpu.index")
    pod = serializers.CharField(source="pod.name", default=None, allow_null=True, help_text="Null: which pod has it is not known.")
    place = serializers.CharField(source="pod.place", default="", help_text="The pod among its peers, as worker 3.")
    is_straggler = serializers.SerializerMethodField()
    reading = serializers.SerializerMethodField(help_text="The newest of its box's time; null: none.")

    def get_is_straggler(self, row: WorkloadGpu) -> bool:
        return str(row.gpu.pk) in self.context["stragglers"]

    @extend_schema_field(ReadingSerializer(allow_null=True))
    def get_reading(self, row: WorkloadGpu) -> Any:
        return nested(ReadingSerializer, row.reading)


class WorkloadDetailSerializer(WorkloadSerializer):
    config = serializers.SerializerMethodField()
    gpus = serializers.SerializerMethodField(help_text="Those that its pods hold now, as far as they are known.")

    class Meta(WorkloadSerializer.Meta):
        fields = [*WorkloadSerializer.Meta.fields, "config", "gpus"]

    @extend_schema_field(ConfigSerializer)
    def get_config(self, row: Any) -> Any:
        return nested(ConfigSerializer, row.config)

    @extend_schema_field(WorkloadGpuSerializer(many=True))
    def get_gpus(self, row: Any) -> Any:
        serializer = WorkloadGpuSerializer(context={"stragglers": stragglers_of(row, now=self.context["now"])})
        return [serializer.to_representation(gpu) for gpu in gpus_of([row])[row.pk]]


class PodSerializer(ModelOutputSerializer[Pod]):
    namespace = serializers.CharField(source="workload.namespace")
    slice_id = serializers.UUIDField(source="workload.slice_id")
    slice = serializers.CharField(source="workload.slice.name")
    workload_kind = serializers.CharField(source="workload.kind")
    gpr = serializers.CharField(source="gpr.name", default=None, allow_null=True, help_text="The request in whose box it is.")
    gpus = serializers.ListField(child=serializers.UUIDField(), help_text="Ids of its GPUs, as far as they are known.")
    requests = serializers.DictField(child=serializers.CharField())

    class Meta:
        model = Pod
        fields = [
            *("id", "uid", "name", "namespace", "slice_id", "slice", "cluster", "workload_id", "workload", "workload_kind"),
            *("gpr_id", "gpr", "node", "phase", "hold", "why", "gpu_count", "gpus", "requests", "image", "role", "rank", "restarts"),
            *("created_at", "started_at", "gone_at"),
        ]


class WorkloadFilter(filters.FilterSet):
    slice = ReferenceFilter("slice")
    cluster = ReferenceFilter("cluster")
    gpr = ReferenceFilter("gprs", label="A request that carries its pods, or did.")
    namespace = filters.CharFilter("namespace")
    kind = filters.CharFilter("kind", lookup_expr="iexact", label="As JobSet.")
    state = Words(choices=WorkloadState.choices)
    view = filters.ChoiceFilter(choices=WorkloadView.choices, method="in_view")
    q = Search(method="matching", max_length=SEARCH_MAX_CHARS, label="Part of its name, model, namespace or request.")

    def in_view(self, rows: QuerySet[Workload], name: str, value: str) -> QuerySet[Workload]:
        return rows.filter(workloads_in(value))

    def matching(self, rows: QuerySet[Workload], name: str, value: str) -> QuerySet[Workload]:
        return rows.filter(workloads_matching(value))


class WorkloadViewSet(mixins.ListModelMixin, ApiViewSet[Workload]):
    """List workloads of workspaces: pods, grouped by their owner."""

    queryset = Workload.objects.none()
    serializer_class = WorkloadSerializer
    filterset_class = WorkloadFilter
    lookup_field = "ref"

    def get_queryset(self) -> QuerySet[Workload]:
        return workloads_visible_to(actor_of(self.request))

    def get_serializer_class(self) -> Any:
        return WorkloadDetailSerializer if self.action == "retrieve" else WorkloadSerializer

    def retrieve(self, request: Request, ref: str) -> Response:
        return Response(self.get_serializer(workload_for(actor_of(request), ref)).data)


class PodFilter(filters.FilterSet):
    slice = ReferenceFilter("workload__slice")
    cluster = ReferenceFilter("cluster")
    workload = filters.CharFilter(method="of_workload", label="Id of the workload.")
    gpr = ReferenceFilter("gpr")
    namespace = filters.CharFilter("workload__namespace")
    node = filters.CharFilter("node")
    view = filters.ChoiceFilter(choices=PodView.choices, method="in_view", label="Ended ones are listed for a day.")
    q = Search(method="matching", max_length=SEARCH_MAX_CHARS, label="Part of its name, workload, node or request.")

    def of_workload(self, rows: QuerySet[Pod], name: str, value: str) -> QuerySet[Pod]:
        id_ = id_of(value)
        return rows.filter(Q(workload=id_) if id_ else Q(pk__in=[]))

    def in_view(self, rows: QuerySet[Pod], name: str, value: str) -> QuerySet[Pod]:
        return rows.filter(pods_in(value))

    def matching(self, rows: QuerySet[Pod], name: str, value: str) -> QuerySet[Pod]:
        return rows.filter(pods_matching(value))


class PodViewSet(mixins.ListModelMixin, ApiViewSet[Pod]):
    """These pods hold GPUs or ask for them; each says what keeps it from running."""

    queryset = Pod.objects.none()
    serializer_class = PodSerializer
    filterset_class = PodFilter

    def get_queryset(self) -> QuerySet[Pod]:
        return pods_visible_to(actor_of(self.request))

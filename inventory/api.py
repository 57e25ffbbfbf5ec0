from __future__ import annotations

from typing import Any, ClassVar, Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import ObjectKind, Verb, may_all
from core.rest.fields import Flag, Id, NewName, Nothing, StrictSerializer, Text, WholeNumber, Word
from core.rest.filters import Moment, ReferenceFilter, Words
from core.rest.nested import nested
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.pagination import OnePage
from core.rest.references import one_by_id
from core.rest.views import ApiViewSet
from inventory.models import DRAIN_MAX_S, PHASES, AgentSession, Cluster, Gpu, Node, Reservation, ReservationState, ReservedGpu
from inventory.rows import gpus_by_reservation
from inventory.selectors import (
    Availability,
    cluster_for,
    cluster_is_open,
    clusters_visible_to,
    gpus_visible_to,
    node_for,
    nodes_visible_to,
    schedule_visible_to,
    shapes_visible_to,
)
from inventory.services.clusters import (
    cluster_create,
    cluster_resume,
    cluster_set_api_url,
    cluster_set_drain,
    cluster_set_enabled,
    cluster_set_repairs,
    join_token_issue,
)
from inventory.services.nodes import node_cordon, node_uncordon
from inventory.services.reservations import node_force_release

WHY_MAX_CHARS = 150


class Why(StrictSerializer):
    why = Text(max_length=WHY_MAX_CHARS, help_text="The reason, which is recorded with the user's name.")


class AgentSerializer(ModelOutputSerializer[AgentSession]):
    class Meta:
        model = AgentSession
        fields = ["agent_version", "capabilities", "joined_at", "last_sync_at", "known_generation", "clock_offset_s", "locked_at"]


class ClusterSerializer(ModelOutputSerializer[Cluster]):
    """Fields for administrators are null for others."""

    FOR_ALL: ClassVar[frozenset[str]] = frozenset(
        {"id", "name", "created_at", "is_enabled", "is_open", "drain_grace_s", "drain_force_after_s"}
    )

    is_open = serializers.SerializerMethodField(help_text="Requests may start here now.")
    uid = serializers.CharField(allow_null=True)
    generation = serializers.IntegerField(allow_null=True)
    api_url = serializers.CharField(allow_null=True, help_text="API server address for users; empty: the address that the agent uses.")
    repairs_drift = serializers.BooleanField(
        allow_null=True, help_text="Whether its agent repairs changes that others make to EGS objects, or only reports them."
    )
    agent = AgentSerializer(allow_null=True)

    class Meta:
        model = Cluster
        fields = [
            "id",
            "name",
            "created_at",
            "is_enabled",
            "is_open",
            "uid",
            "generation",
            "rewound_at",
            "agent",
            "api_url",
            "repairs_drift",
            "drain_grace_s",
            "drain_force_after_s",
        ]

    def get_is_open(self, cluster: Cluster) -> bool:
        return cluster_is_open(cluster, self.context["now"])

    def to_representation(self, cluster: Cluster) -> dict[str, Any]:
        told = super().to_representation(cluster)
        is_for_admin = may_all(actor_of(self.context["request"]), Verb.INSPECT, ObjectKind.CLUSTER)
        return {name: value if is_for_admin or name in self.FOR_ALL else None for name, value in told.items()}


class ClusterCreate(StrictSerializer):
    name = NewName()


class ClusterChange(StrictSerializer):
    """Omitted fields stay as they are."""

    api_url = Word(
        r"\A(https://[^\s/?#@]+(:[0-9]{1,5})?(/[^\s?#]*)?)?\Z",
        must="Must be an https address, or empty.",
        required=False,
        allow_blank=True,
        max_length=253,
        help_text="API server address in kubeconfigs; empty: the address that the agent uses.",
    )
    repairs_drift = Flag(
        required=False, help_text="Whether to repair changes that others make to EGS objects in the cluster, or only report them."
    )
    drain_grace_s = WholeNumber(
        required=False,
        min_value=0,
        max_value=DRAIN_MAX_S,
        help_text="How long a disruption budget may keep a pod after the end of its request.",
    )
    drain_force_after_s = WholeNumber(
        required=False, min_value=1, max_value=DRAIN_MAX_S, help_text="How long after the end of its request a pod is killed."
    )


class JoinTokenSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField(help_text="The cluster's name.")
    token = serializers.CharField(allow_null=True, help_text="Valid for one join. Only this answer contains it; null in a replay.")
    expires_at = serializers.DateTimeField()


class ClusterViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Any]):
    queryset = Cluster.objects.none()
    serializer_class = ClusterSerializer
    change_body = ClusterChange
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    admin_actions = ("create", "partial_update", "join_token", "resume", "enable", "disable")

    def get_queryset(self) -> QuerySet[Cluster]:
        return clusters_visible_to(actor_of(self.request))

    def get_object(self) -> Cluster:
        return cluster_for(actor_of(self.request), self.kwargs["ref"])

    @extend_schema(request=ClusterCreate, responses={201: ClusterSerializer})
    def create(self, request: Request) -> Response:
        data = self.body(ClusterCreate)
        made = cluster_create(name=data["name"], actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(self.get_queryset().get(pk=made.pk)).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ClusterChange)
    def partial_update(self, request: Request, ref: str) -> Response:
        data, cluster = self.body(ClusterChange), self.get_object()
        if "api_url" in data:
            cluster_set_api_url(cluster=cluster, api_url=data["api_url"], actor=actor_of(request), now=self.now)
        if "repairs_drift" in data:
            cluster_set_repairs(cluster=cluster, repairs_drift=data["repairs_drift"], actor=actor_of(request), now=self.now)
        if data.keys() & {"drain_grace_s", "drain_force_after_s"}:
            grace_s, force_after_s = data.get("drain_grace_s"), data.get("drain_force_after_s")
            cluster_set_drain(cluster=cluster, grace_s=grace_s, force_after_s=force_after_s, actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(self.get_object()).data)

    @extend_schema(request=Nothing, responses={201: JoinTokenSerializer})
    @action(detail=True, methods=["post"], url_path="join-token")
    def join_token(self, request: Request, ref: str) -> Response:
        """Issue a new token for the cluster's agent, shown once. It ends unused earlier tokens and unlocks a locked agent."""
        self.body(Nothing)
        cluster = self.get_object()
        token, plain = join_token_issue(cluster=cluster, actor=actor_of(request), now=self.now)
        answer = {"id": token.pk, "name": cluster.name, "token": plain, "expires_at": token.expires_at}
        return Response(JoinTokenSerializer(answer).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, ref: str) -> Response:
        """Continue after a rewind, when the administrator has compared the agent's state with the hub's."""
        self.body(Nothing)
        cluster = self.get_object()
        cluster_resume(cluster=cluster, actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(cluster).data)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def enable(self, request: Request, ref: str) -> Response:
        """Requests may start there again, if its agent is connected."""
        return self._set_enabled(True)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def disable(self, request: Request, ref: str) -> Response:
        """Nothing new starts there. Running requests continue to their end; waiting ones are planned elsewhere, or for when it may be
        back.
        """
        return self._set_enabled(False)

    def replay(self, object_id: UUID | None) -> Response:
        if self.action != "join_token" or object_id is None:
            return super().replay(object_id)
        token = one_by_id(self.get_object().join_tokens.all(), object_id, what="join token")
        answer = {"id": token.pk, "name": token.cluster.name, "token": None, "expires_at": token.expires_at}
        return Response(JoinTokenSerializer(answer).data, status=status.HTTP_201_CREATED)

    def _set_enabled(self, is_enabled: bool) -> Response:
        self.body(Nothing)
        cluster = self.get_object()
        cluster_set_enabled(cluster=cluster, is_enabled=is_enabled, actor=actor_of(self.request), now=self.now)
        return Response(self.get_serializer(self.get_object()).data)


class HolderSerializer(ModelOutputSerializer[Reservation]):
    class Meta:
        model = Reservation
        fields = ["id", "gpr_id", "gpr", "slice_id", "slice", "phase", "ends_at"]


class NodeHolderSerializer(HolderSerializer):
    gpu_count = serializers.IntegerField(help_text="How many of the node's GPUs it holds.")

    class Meta(HolderSerializer.Meta):
        fields = [*HolderSerializer.Meta.fields, "gpu_count"]


class NodeConditionSerializer(OutputSerializer[Any]):
    type = serializers.CharField()
    status = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()
    since_at = serializers.SerializerMethodField(help_text="Null: not known.")

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_since_at(self, condition: dict[str, Any]) -> str | None:
        since_at: str | None = condition["since_at"]
        return since_at


class NodeSerializer(ModelOutputSerializer[Node]):
    """`held_by` names only holders that the caller may see, so it can be empty for a held node."""

    state = serializers.ChoiceField(source="availability", choices=Availability.choices)
    gpus_free = serializers.IntegerField()
    is_cordoned = serializers.SerializerMethodField()
    cordon_reason = serializers.SerializerMethodField(help_text="For administrators; null for others.")
    conditions = serializers.SerializerMethodField(help_text="Bad ones; for administrators, null for others.")
    held_by = NodeHolderSerializer(many=True)

    class Meta:
        model = Node
        fields = ["id", "name", "cluster_id", "cluster", "shape", "node_type", "gpu_count", "gpu_memory_gib", "gpus_free", "state"]
        fields += ["rdma", "zone", "rack", "nvlink_domain", "is_ready", "is_cordoned", "cordon_reason", "conditions", "seen_at", "held_by"]

    def get_is_cordoned(self, node: Node) -> bool:
        return node.cordoned_at is not None

    def get_cordon_reason(self, node: Node) -> str | None:
        return node.cordon_reason if self._is_admin else None

    @extend_schema_field(NodeConditionSerializer(many=True, allow_null=True))
    def get_conditions(self, node: Node) -> list[Any] | None:
        return list(NodeConditionSerializer(node.conditions, many=True).data) if self._is_admin else None

    @property
    def _is_admin(self) -> bool:
        return may_all(actor_of(self.context["request"]), Verb.INSPECT, ObjectKind.NODE)


class NodeFilter(filters.FilterSet):
    name = filters.CharFilter(lookup_expr="icontains")
    cluster = ReferenceFilter("cluster")
    shape = filters.CharFilter()
    state = Words("availability", choices=Availability.choices)


class ForceRelease(Why):
    reservations = serializers.ListField(child=Id(), allow_empty=False, max_length=100, help_text="Ids of reservations that hold the node.")


class NodeViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Any]):
    queryset = Node.objects.none()
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    admin_actions = ("cordon", "uncordon", "force_release")

    def get_queryset(self) -> QuerySet[Node]:
        return nodes_visible_to(actor_of(self.request), now=self.now)

    def get_object(self) -> Node:
        return node_for(actor_of(self.request), self.kwargs["ref"], now=self.now)

    @extend_schema(request=Why)
    @action(detail=True, methods=["post"])
    def cordon(self, request: Request, ref: str) -> Response:
        """Nothing new starts on the node. Running requests continue to their end; planned ones start elsewhere."""
        why = self.body(Why)["why"]
        node_cordon(node=self.get_object(), actor=actor_of(request), why=why, now=self.now)
        return self.retrieve(request)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def uncordon(self, request: Request, ref: str) -> Response:
        """Requests may start on the node again."""
        self.body(Nothing)
        node_uncordon(node=self.get_object(), actor=actor_of(request), now=self.now)
        return self.retrieve(request)

    @extend_schema(request=ForceRelease)
    @action(detail=True, methods=["post"], url_path="force-release")
    def force_release(self, request: Request, ref: str) -> Response:
        """Free the node without its agent's confirmation: the administrator vouches that nothing of these reservations runs on it."""
        data = self.body(ForceRelease)
        node_force_release(
            node=self.get_object(), reservation_ids=data["reservations"], actor=actor_of(request), why=data["why"], now=self.now
        )
        return self.retrieve(request)


HARDWARE_HELP: Final = (
    "The UUID that the GPU's driver reported to a check; empty if unknown or hidden. Administrators always see it, members while their "
    "workspace holds the whole node. If boxes share a node, it does not relate to `held_by`: there the cluster chooses the GPUs of a "
    "box, and `index` is EGS's own number."
)


class GpuSerializer(ModelOutputSerializer[Gpu]):
    name = serializers.CharField(source="uuid")
    cluster_id = serializers.UUIDField(source="node.cluster_id")
    cluster = serializers.CharField(source="node.cluster.name")
    shape = serializers.CharField(source="node.shape")
    state = serializers.ChoiceField(source="availability", choices=Availability.choices)
    hardware_uuid = serializers.CharField(source="hardware_known", help_text=HARDWARE_HELP)
    held_by = serializers.SerializerMethodField()

    class Meta:
        model = Gpu
        fields = ["id", "name", "uuid", "hardware_uuid", "index", "node_id", "node", "cluster_id", "cluster", "shape", "model"]
        fields += ["memory_gib", "is_healthy", "state", "held_by"]

    @extend_schema_field(HolderSerializer(allow_null=True))
    def get_held_by(self, gpu: Any) -> Any:
        reserved: list[ReservedGpu] = gpu.held_by
        return nested(HolderSerializer, reserved[0].reservation) if reserved else None


class GpuFilter(filters.FilterSet):
    cluster = ReferenceFilter("node__cluster")
    node = ReferenceFilter("node")
    uuid = filters.CharFilter()
    hardware_uuid = filters.CharFilter("hardware_known")
    state = Words("availability", choices=Availability.choices)


class GpuViewSet(mixins.ListModelMixin, ApiViewSet[Any]):
    queryset = Gpu.objects.none()
    serializer_class = GpuSerializer
    filterset_class = GpuFilter
    ordering = ("node__name", "index", "id")

    def get_queryset(self) -> QuerySet[Gpu]:
        return gpus_visible_to(actor_of(self.request), now=self.now)


class ShapeInClusterSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    node_types = serializers.ListField(child=serializers.CharField())
    rdma = serializers.BooleanField()
    gpus_per_node = serializers.IntegerField(help_text="GPUs of the largest node.")
    nodes = serializers.IntegerField()
    nodes_free = serializers.IntegerField()
    gpus = serializers.IntegerField()
    gpus_free = serializers.IntegerField()


class ShapeSerializer(OutputSerializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    gpu_memory_gib = serializers.IntegerField()
    clusters = ShapeInClusterSerializer(many=True)


class ShapeViewSet(ApiViewSet[Any]):
    queryset = Node.objects.none()
    serializer_class = ShapeSerializer
    pagination_class = OnePage

    def list(self, request: Request) -> Response:
        shapes = shapes_visible_to(actor_of(request), now=self.now)
        return self.get_paginated_response(ShapeSerializer(shapes, many=True).data)


class ScheduleSerializer(ModelOutputSerializer[Reservation]):
    """For other workspaces' reservations only node and window are given; the name is "busy" and all else null."""

    # An allowlist, so that a new field is hidden by default.
    FOR_ALL: ClassVar[frozenset[str]] = frozenset({"node_id", "node", "cluster_id", "cluster", "state", "starts_at", "ends_at"})
    MASKED: ClassVar[dict[str, Any]] = {"name": "busy", "gpus": []}

    id = serializers.UUIDField(allow_null=True)
    name = serializers.CharField(source="gpr.name")
    gpus = serializers.SerializerMethodField(help_text="UUIDs of the GPUs.")
    gpr_id = serializers.UUIDField(allow_null=True)
    gpr = serializers.CharField(source="gpr.name", allow_null=True)
    slice_id = serializers.UUIDField(allow_null=True)
    slice = serializers.CharField(source="slice.name", allow_null=True)
    run = serializers.IntegerField(allow_null=True)
    phase = serializers.ChoiceField(choices=PHASES, allow_null=True)
    failure = serializers.CharField(allow_null=True)

    class Meta:
        model = Reservation
        fields = ["id", "name", "node_id", "node", "cluster_id", "cluster", "state", "starts_at", "ends_at"]
        fields += ["gpus", "gpr_id", "gpr", "slice_id", "slice", "run", "phase", "failure"]
        fields += ["active_at", "not_after_at", "exit_began_at", "released_at"]

    def get_gpus(self, row: Reservation) -> list[str]:
        return list(self.context["gpus"].get(row.pk, ()))

    def to_representation(self, row: Any) -> dict[str, Any]:
        told = super().to_representation(row)
        if row.is_own:
            return told
        return {name: value if name in self.FOR_ALL else self.MASKED.get(name) for name, value in told.items()}


class ScheduleFilter(filters.FilterSet):
    node = ReferenceFilter("node")
    cluster = ReferenceFilter("cluster")
    gpr = ReferenceFilter("gpr", only=Q(is_own=True))
    slice = ReferenceFilter("slice", only=Q(is_own=True))
    state = Words(choices=ReservationState.choices)
    # `from` is a Python keyword.
    vars()["from"] = Moment("ends_at", lookup_expr="gt", label="Ends after this time.")
    to = Moment("starts_at", lookup_expr="lt", label="Starts before this time.")


class ScheduleViewSet(ApiViewSet[Any]):
    """Reservations of nodes, oldest first."""

    queryset = Reservation.objects.none()
    serializer_class = ScheduleSerializer
    filterset_class = ScheduleFilter
    # Not by id: a cursor must not reveal ids of other workspaces. (node, epoch) is unique.
    ordering = ("starts_at", "node_id", "epoch")

    def get_queryset(self) -> QuerySet[Reservation]:
        return schedule_visible_to(actor_of(self.request))

    @extend_schema(responses=ScheduleSerializer(many=True))
    def list(self, request: Request) -> Response:
        rows: list[Any] = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        gpus = gpus_by_reservation([row.pk for row in rows if row.is_own])
        return self.get_paginated_response(ScheduleSerializer(rows, many=True, context={"gpus": gpus}).data)

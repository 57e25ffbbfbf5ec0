"""Serves `maintenance/`: announced windows, with the promises and boxes that they affect."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import User
from accounts.policy import is_overseer
from core.errors import InvalidInput
from core.rest.fields import Reference, StrictSerializer, Text
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.views import ApiViewSet
from gpr.models import PromiseMove
from gpr.queue.previews import preview_maintenance
from gpr.requests.filters import MaintenanceFilter
from inventory.models import MaintenanceState, MaintenanceWindow, Reservation
from inventory.selectors import boxes_reaching_into, cluster_for, maintenance_for, maintenance_visible_to, node_for
from inventory.services.maintenance import window_announce, window_cancel, window_draft
from planner.causes import Cause

REASON_MAX_CHARS = 200


class MaintenanceCreate(StrictSerializer):
    cluster = Reference(required=False, help_text="Closes the whole cluster. Give either this or `node`.")
    node = Reference(required=False)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    reason = Text(max_length=REASON_MAX_CHARS, help_text="Shown to all whose workspaces may use the cluster.")


class MaintenanceSerializer(ModelOutputSerializer[MaintenanceWindow]):
    name = serializers.CharField(source="place", help_text="The node or cluster that it closes.")
    node = serializers.CharField(source="node.name", default=None, allow_null=True, help_text="Null: the whole cluster.")
    state = serializers.SerializerMethodField()

    class Meta:
        model = MaintenanceWindow
        fields = ["id", "name", "cluster", "cluster_id", "node", "node_id", "starts_at", "ends_at", "reason", "state"]
        fields += ["created_at", "canceled_at"]

    @extend_schema_field(serializers.ChoiceField(choices=MaintenanceState.choices))
    def get_state(self, window: MaintenanceWindow) -> str:
        return window.state(self.context["now"])


class MovedSerializer(OutputSerializer[Any]):
    gpr_id = serializers.UUIDField(source="gpr.pk")
    gpr = serializers.CharField(source="gpr.name")
    slice = serializers.CharField(source="gpr.slice.name")
    owner = serializers.CharField(source="gpr.owner.name")
    old_start_at = serializers.DateTimeField()
    new_start_at = serializers.DateTimeField()


class ReachingSerializer(ModelOutputSerializer[Reservation]):
    class Meta:
        model = Reservation
        fields = ["gpr_id", "gpr", "slice", "node", "ends_at"]


class MaintenanceEffectsSerializer(OutputSerializer[Any]):
    """It names requests of all workspaces, so administrators alone read it."""

    moved = MovedSerializer(many=True, help_text="Promises that it moves.")
    boxes = ReachingSerializer(many=True, help_text="Requests that hold its nodes beyond its start, and run on unless they are evicted.")


class MaintenanceDetailSerializer(MaintenanceSerializer):
    effects = serializers.SerializerMethodField(help_text="Null for all but administrators.")

    class Meta(MaintenanceSerializer.Meta):
        fields = [*MaintenanceSerializer.Meta.fields, "effects"]

    @extend_schema_field(MaintenanceEffectsSerializer(allow_null=True))
    def get_effects(self, window: MaintenanceWindow) -> Any:
        if not self.context["is_for_admin"]:
            return None
        now: datetime = self.context["now"]
        moves = PromiseMove.objects.filter(cause=Cause.MAINTENANCE, cause_id=str(window.pk)).select_related("gpr__slice", "gpr__owner")
        boxes = boxes_reaching_into([window], now=now)[window.pk] if window.is_ahead(now) else []
        return MaintenanceEffectsSerializer({"moved": moves, "boxes": boxes}).data


class MaintenanceViewSet(mixins.ListModelMixin, ApiViewSet[Any]):
    queryset = MaintenanceWindow.objects.none()
    serializer_class = MaintenanceSerializer
    filterset_class = MaintenanceFilter
    ordering = ("starts_at", "id")
    lookup_url_kwarg = "ref"

    read_actions = ("preview",)
    admin_actions = ("create", "preview", "destroy")

    def get_queryset(self) -> QuerySet[MaintenanceWindow]:
        return maintenance_visible_to(actor_of(self.request))

    @extend_schema(responses=MaintenanceDetailSerializer)
    def retrieve(self, request: Request, ref: str) -> Response:
        return self._answer(ref)

    @extend_schema(request=MaintenanceCreate, responses={201: MaintenanceDetailSerializer})
    def create(self, request: Request) -> Response:
        """Announce a maintenance window. Running requests continue to their end; promises that overlap it move within a second."""
        data, actor = self.body(MaintenanceCreate), actor_of(request)
        window = _draft(data, actor=actor, now=self.now)
        window_announce(window=window, actor=actor, now=self.now)
        return self._answer(window.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=MaintenanceCreate, responses={200: MaintenanceEffectsSerializer})
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        """Show which requests the window would affect. Nothing is written."""
        actor = actor_of(request)
        preview = preview_maintenance(window=_draft(self.body(MaintenanceCreate), actor=actor, now=self.now), now=self.now)
        return Response(MaintenanceEffectsSerializer(preview).data)

    def destroy(self, request: Request, ref: str) -> Response:
        """Cancel the rest of the window. It stays in the list as canceled."""
        actor = actor_of(request)
        window_cancel(window=maintenance_for(actor, ref), actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        actor = actor_of(self.request)
        context = {"now": self.now, "is_for_admin": is_overseer(actor)}
        return Response(MaintenanceDetailSerializer(maintenance_for(actor, pk), context=context).data, **kwargs)


def _draft(data: dict[str, Any], *, actor: User, now: datetime) -> MaintenanceWindow:
    """Raises InvalidInput, or NotFound."""
    if ("cluster" in data) == ("node" in data):
        raise InvalidInput({"cluster": ["Name a cluster or a node, and not both."]})
    node = node_for(actor, data["node"], now=now) if "node" in data else None
    cluster = node.cluster if node is not None else cluster_for(actor, data["cluster"])
    return window_draft(cluster=cluster, node=node, starts_at=data["starts_at"], ends_at=data["ends_at"], reason=data["reason"], now=now)

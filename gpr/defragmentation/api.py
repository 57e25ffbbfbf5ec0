"""`defragmentation/`: moves that would free whole nodes, for administrators."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import Verb
from core.rest.fields import Reference, StrictSerializer, Text, ToldNumber
from core.rest.output import OutputSerializer
from core.rest.pagination import OnePage
from core.rest.references import one_by_id
from core.rest.views import ApiViewSet
from gpr.defragmentation.selectors import WantedRoom, room_question, suggestions
from gpr.defragmentation.services import gpr_make_room
from gpr.evictions.api import EvictionSerializer
from gpr.models import Eviction
from gpr.requests.inputs import WHY_MAX_CHARS, Duration
from gpr.requests.selectors import evictions_visible_to, gpr_for
from gpr.requests.spec import BOUNDS
from inventory.selectors import cluster_for
from slices.models import PRIORITY_DEFAULT


class RoomQuestion(StrictSerializer):
    """Describes a booking that nobody has filed yet."""

    shape = Text(help_text="The GPU shape, e.g. H100-80GB.")
    nodes = ToldNumber(bounds=BOUNDS["nodes"])
    gpus_per_node = ToldNumber(bounds=BOUNDS["gpus_per_node"], required=False, allow_null=True, help_text="Null: whole nodes.")
    starts_at = serializers.DateTimeField()
    duration_s = Duration()
    cluster = Reference(required=False, help_text="Default: any cluster.")
    priority = ToldNumber(bounds=BOUNDS["priority"], default=PRIORITY_DEFAULT, help_text="Requests of a higher priority are not moved.")


class Agreement(StrictSerializer):
    fingerprint = Text(max_length=64, help_text="Fingerprint of the proposal that you read. The answer is 409 if it has changed.")
    why = Text(max_length=WHY_MAX_CHARS, help_text="The reason, which is recorded with the user's name.")


class MovingSerializer(OutputSerializer[Any]):
    gpr_id = serializers.UUIDField(source="gpr.pk")
    gpr = serializers.CharField(source="gpr.name")
    slice = serializers.CharField(source="gpr.slice.name")
    from_nodes = serializers.ListField(child=serializers.CharField())
    to_nodes = serializers.ListField(child=serializers.CharField())
    ends_at = serializers.DateTimeField(help_text="When its notice ends and its nodes are taken back.")
    frees_at = serializers.DateTimeField(help_text="When its nodes are free.")
    restarts_at = serializers.DateTimeField(help_text="When it can run again for its remaining time, if no other request takes the place.")
    lost_gpu_s = serializers.IntegerField(help_text="GPU-seconds that it has run since its start.")
    idle_gpu_s = serializers.IntegerField(help_text="GPU-seconds from the end of this run to the start of the next.")


class SuggestionSerializer(OutputSerializer[Any]):
    gpr_id = serializers.UUIDField(
        source="gpr.pk", allow_null=True, default=None, help_text="The GPR that gets the nodes; null for a question."
    )
    gpr = serializers.CharField(source="gpr.name", allow_null=True, default=None)
    slice = serializers.CharField(source="gpr.slice.name", allow_null=True, default=None)
    cluster = serializers.CharField()
    shape = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField(), help_text="The nodes that it would use.")
    freed = serializers.ListField(child=serializers.CharField(), help_text="The nodes among them that other requests have to leave.")
    start_at = serializers.DateTimeField()
    instead_at = serializers.DateTimeField(help_text="When it starts if no request is moved.")
    cost_gpu_s = serializers.IntegerField(help_text="The sum of `lost_gpu_s` and `idle_gpu_s` over all moves.")
    value_gpu_s = serializers.IntegerField(help_text="Its GPUs times the seconds by which it starts sooner.")
    moves = MovingSerializer(many=True)
    fingerprint = serializers.CharField()


class RoomAnswerSerializer(OutputSerializer[Any]):
    fits = serializers.BooleanField(help_text="Whether it fits without moving a request.")
    instead_at = serializers.DateTimeField(allow_null=True, help_text="When it would fit next; null if it fits.")
    suggestion = SuggestionSerializer(allow_null=True, help_text="Null if it fits, or if no moves are worth their cost.")


class DefragmentationViewSet(ApiViewSet[Eviction]):
    queryset = Eviction.objects.none()
    serializer_class = SuggestionSerializer
    pagination_class = OnePage
    read_actions = ("question",)
    admin_actions = ("list", "question", "apply")

    def list(self, request: Request) -> Response:
        """List proposals for waiting requests, the lowest cost first. Nothing moves until an administrator applies one."""
        return self.get_paginated_response(SuggestionSerializer(suggestions(now=self.now), many=True).data)

    @extend_schema(request=RoomQuestion, responses={200: RoomAnswerSerializer})
    @action(detail=False, methods=["post"])
    def question(self, request: Request) -> Response:
        """Ask whether a booking would fit, and which moves would make it fit. Nothing is written."""
        data = self.body(RoomQuestion)
        cluster = cluster_for(actor_of(request), data.pop("cluster")) if "cluster" in data else None
        return Response(RoomAnswerSerializer(room_question(WantedRoom(**data, cluster=cluster), now=self.now)).data)

    @extend_schema(request=Agreement, responses={200: EvictionSerializer})
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Apply the proposal for this GPR: the moved requests get notice, and the GPR gets a promise of their nodes."""
        actor = actor_of(request)
        data, gpr = self.body(Agreement), gpr_for(actor, pk, verb=Verb.CHANGE)
        made = gpr_make_room(gpr=gpr, actor=actor, now=self.now, **data)
        return Response(EvictionSerializer(evictions_visible_to(actor).get(pk=made.pk)).data)

    def replay(self, object_id: UUID | None) -> Response:
        return Response(EvictionSerializer(one_by_id(evictions_visible_to(actor_of(self.request)), str(object_id), what="eviction")).data)

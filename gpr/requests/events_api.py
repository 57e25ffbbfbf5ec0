"""Serves `events/`, newest first. It is in `gpr` because visibility follows slice membership."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework import mixins, serializers

from accounts.authentication import actor_of
from core.rest.output import ModelOutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from gpr.requests.filters import EventFilter
from gpr.requests.selectors import events_visible_to
from journal.models import Event


class EventSerializer(ModelOutputSerializer[Event]):
    id = SealedId()
    name = serializers.CharField(source="kind")
    actor = serializers.CharField(source="actor.name", default=None, allow_null=True, help_text="Null: EGS did it.")

    class Meta:
        model = Event
        fields = ["id", "name", "at", "kind", "severity", "message", "reason", "old", "new", "actor"]
        fields += ["gpr_id", "slice_id", "node_id", "cluster_id", "data"]


class EventViewSet(mixins.ListModelMixin, ApiViewSet[Event]):
    queryset = Event.objects.none()
    serializer_class = EventSerializer
    filterset_class = EventFilter
    ordering = ("-id",)

    def get_queryset(self) -> QuerySet[Event]:
        return events_visible_to(actor_of(self.request))

"""Serves `events/`, newest first. It is in `gpr` because visibility follows slice membership."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.held import PARAMETERS, UNCHANGED, Held, etag_of_rows, hold, known_etags, wait_asked_s
from core.rest.output import ModelOutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from gpr.requests.filters import EventFilter
from gpr.requests.selectors import events_visible_to, topics_of_events
from journal.models import Event


class EventSerializer(ModelOutputSerializer[Event]):
    id = SealedId()
    name = serializers.CharField(source="kind")
    actor = serializers.CharField(source="actor.name", default=None, allow_null=True, help_text="Null: EGS did it.")

    class Meta:
        model = Event
        fields = ["id", "name", "at", "kind", "severity", "message", "reason", "old", "new", "actor"]
        fields += ["gpr_id", "slice_id", "node_id", "cluster_id", "data"]


class EventViewSet(ApiViewSet[Event]):
    queryset = Event.objects.none()
    serializer_class = EventSerializer
    filterset_class = EventFilter
    ordering = ("-id",)

    def get_queryset(self) -> QuerySet[Event]:
        return events_visible_to(actor_of(self.request))

    @extend_schema(parameters=PARAMETERS, responses={200: EventSerializer(many=True), 304: UNCHANGED})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        wait_s, known, rows = wait_asked_s(request), known_etags(request), self._page(self.get_queryset())
        etag = etag_of_rows(rows)
        if etag not in known:
            response: Response = self.get_paginated_response(self.get_serializer(rows, many=True).data)
            response["ETag"] = etag
            return response
        actor, ids = actor_of(request), self.get_queryset().select_related(None).only("pk")
        hold(request, Held(actor.pk, topics_of_events(actor), wait_s, lambda: etag_of_rows(self._page(ids)) not in known))
        return Response(status=304, headers={"ETag": etag})

    def _page(self, rows: QuerySet[Event]) -> Sequence[Event]:
        page: Sequence[Event] = self.paginate_queryset(self.filter_queryset(rows)) or []
        return page

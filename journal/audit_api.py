"""Shows administrators and auditors which Events people caused, and where the requests came from."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request

from core.rest.filters import KnownFilter, Moment, ReferenceFilter
from core.rest.output import ModelOutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from core.streaming import StreamedText
from journal.models import Event
from journal.notices.audience import tenancy
from journal.selectors import audit_trail

EXPORT_ROWS = 500  # read at once


class AuditFilter(filters.FilterSet):
    actor = ReferenceFilter("actor", label="Id or name.")
    slice = KnownFilter("slice_id", known=lambda reader: tenancy().slices_seen_by(reader))
    gpr = filters.UUIDFilter("gpr_id", label="Id.")
    kind = filters.CharFilter(lookup_expr="startswith", label="Beginning of the kind, e.g. `gpr.`.")
    text = filters.CharFilter("message", lookup_expr="icontains", label="Part of the message.")
    request = filters.CharFilter("request_id", label="The X-Request-Id of an answer.")
    token = filters.CharFilter("token_key", label="The public key id of a token.")
    address = filters.CharFilter("address")
    since = Moment("at", lookup_expr="gte")
    until = Moment("at", lookup_expr="lt")


class AuditSerializer(ModelOutputSerializer[Event]):
    id = SealedId()
    actor = serializers.CharField(source="actor.name", default=None, allow_null=True, help_text="Null: nobody had signed in.")

    class Meta:
        model = Event
        fields = [
            "id",
            "at",
            "kind",
            "severity",
            "message",
            "reason",
            "old",
            "new",
            "actor",
            "request_id",
            "address",
            "token_key",
            "login_id",
        ]
        fields += ["gpr_id", "slice_id", "node_id", "cluster_id", "data"]


class AuditViewSet(mixins.ListModelMixin, ApiViewSet[Event]):
    queryset = Event.objects.none()
    serializer_class = AuditSerializer
    filterset_class = AuditFilter
    ordering = ("-id",)
    admin_actions = ("list", "export")

    def get_queryset(self) -> QuerySet[Event]:
        return audit_trail()

    @extend_schema(
        filters=True,
        responses={(200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "A JSON object a line, oldest first.")},
    )
    @action(detail=False, methods=["get"], pagination_class=None)
    def export(self, request: Request) -> StreamedText:
        """Export all records that match the filters as JSON lines, the oldest first."""
        return audit_file(self.filter_queryset(self.get_queryset()))


def audit_file(rows: QuerySet[Event]) -> StreamedText:
    return StreamedText(_lines(rows.order_by("id")), content_type="application/x-ndjson", filename="audit.jsonl")


def _lines(rows: QuerySet[Event]) -> Iterator[str]:
    after = 0
    while batch := list(rows.filter(Q(pk__gt=after))[:EXPORT_ROWS]):
        for row in batch:
            yield json.dumps(AuditSerializer(row).data, default=str) + "\n"
        after = batch[-1].pk

from __future__ import annotations

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Nothing
from core.rest.filters import Words, YesNo
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from journal.models import Notice, Severity
from journal.notices.kinds import NoticeKind
from journal.notices.selectors import notice_for, notices_of
from journal.notices.services import notice_read, notices_read_all


class NoticeFilter(filters.FilterSet):
    kind = Words(choices=NoticeKind.choices)
    unread = YesNo(pick=lambda is_unread: Q(read_at__isnull=is_unread))


class NoticeSerializer(ModelOutputSerializer[Notice]):
    event = SealedId(source="event_id", help_text="Its id in `/events/`.")
    severity = serializers.ChoiceField(choices=Severity.choices, source="event.severity")
    text = serializers.CharField(source="event.message")
    gpr = serializers.UUIDField(source="event.gpr_id", allow_null=True)
    slice = serializers.UUIDField(source="event.slice_id", allow_null=True)

    class Meta:
        model = Notice
        fields = ["id", "kind", "severity", "text", "event", "gpr", "slice", "created_at", "read_at"]


class ReadAllSerializer(OutputSerializer[dict[str, int]]):
    read_count = serializers.IntegerField()


class NoticeViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Notice]):
    """Shows the caller's own notices, the newest first."""

    queryset = Notice.objects.none()
    serializer_class = NoticeSerializer
    filterset_class = NoticeFilter
    keyless_actions = ("read", "read_all")  # a repetition changes nothing

    def get_queryset(self) -> QuerySet[Notice]:
        return notices_of(actor_of(self.request))

    def get_object(self) -> Notice:
        return notice_for(actor_of(self.request), self.kwargs["pk"])

    @extend_schema(request=Nothing, responses={200: NoticeSerializer})
    @action(detail=True, methods=["post"])
    def read(self, request: Request, pk: str) -> Response:
        self.body(Nothing)
        notice = self.get_object()
        notice_read(notice=notice, now=self.now)
        return Response(self.get_serializer(notice).data)

    @extend_schema(request=Nothing, responses={200: ReadAllSerializer}, filters=False)
    @action(detail=False, methods=["post"], url_path="read-all", pagination_class=None)
    def read_all(self, request: Request) -> Response:
        self.body(Nothing)
        return Response({"read_count": notices_read_all(user=actor_of(request), now=self.now)})

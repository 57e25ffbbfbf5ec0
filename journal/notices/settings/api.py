from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Reference, StrictSerializer, Text
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from journal.models import NoticeSettings
from journal.notices.kinds import NoticeKind
from journal.notices.settings.services import MUTED_MAX, notice_settings_change, notice_settings_for


class NoticeSettingsSerializer(ModelOutputSerializer[NoticeSettings]):
    unwanted_kinds = serializers.ListField(child=serializers.ChoiceField(choices=NoticeKind.choices))
    muted_slices = serializers.ListField(child=serializers.UUIDField())

    class Meta:
        model = NoticeSettings
        fields = ["unwanted_kinds", "muted_slices", "zone", "quiet_from", "quiet_until"]


class NoticeSettingsChange(StrictSerializer):
    unwanted_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=NoticeKind.choices), max_length=len(NoticeKind), required=False
    )
    muted_slices = serializers.ListField(child=Reference(), max_length=MUTED_MAX, required=False, help_text="Ids or names.")
    zone = Text(max_length=63, required=False, help_text="E.g. Europe/Berlin.")
    quiet_from = serializers.TimeField(required=False, allow_null=True, help_text="E.g. 22:00; null: no quiet hours.")
    quiet_until = serializers.TimeField(required=False, allow_null=True)


class NoticeSettingsViewSet(ApiViewSet[NoticeSettings]):
    """The settings of the caller name kinds that the bell leaves out, muted workspaces, and quiet hours."""

    queryset = NoticeSettings.objects.none()
    is_personal = True
    serializer_class = NoticeSettingsSerializer
    change_body = NoticeSettingsChange
    pagination_class = None

    @extend_schema(responses=NoticeSettingsSerializer)
    def retrieve(self, request: Request) -> Response:
        return Response(self.get_serializer(notice_settings_for(actor_of(request))).data)

    @extend_schema(request=NoticeSettingsChange, responses=NoticeSettingsSerializer)
    def partial_update(self, request: Request) -> Response:
        changes = self.body(NoticeSettingsChange)
        return Response(self.get_serializer(notice_settings_change(user=actor_of(request), changes=changes, now=self.now)).data)

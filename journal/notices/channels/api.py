from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Flag, Nothing, Reference, StrictSerializer, Text
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from journal.models import Channel, ChannelKind, Delivery, Digest
from journal.notices.audience import tenancy
from journal.notices.channels.services import (
    SECRET_MAX_CHARS,
    TARGET_MAX_CHARS,
    ChannelTerms,
    channel_change,
    channel_confirm,
    channel_create,
    channel_delete,
    channel_replace_key,
    channel_test,
    delivery_retry,
)
from journal.notices.kinds import NoticeKind
from journal.notices.selectors import channel_for, channels_of, deliveries_of, delivery_for


class ChannelSerializer(ModelOutputSerializer[Channel]):
    slice = serializers.CharField(source="slice.name", default=None, allow_null=True, help_text="Null: it is the caller's own.")
    notice_kinds = serializers.ListField(child=serializers.ChoiceField(choices=NoticeKind.choices))
    needs_code = serializers.BooleanField(help_text="Its mail address gets nothing more until the code sent there is given to `confirm/`.")

    class Meta:
        model = Channel
        fields = ["id", "name", "kind", "slice", "target", "notice_kinds", "digest", "is_on", "needs_code", "created_at"]


class NewChannelSerializer(ChannelSerializer):
    signing_secret = serializers.SerializerMethodField(
        help_text="The key of a webhook's signatures. Only this answer contains it; null in a replay, and for other kinds."
    )

    class Meta(ChannelSerializer.Meta):
        fields = [*ChannelSerializer.Meta.fields, "signing_secret"]

    def get_signing_secret(self, channel: Channel) -> str | None:
        plain: str | None = self.context["plain"]
        return plain


class ChannelTermsInput(StrictSerializer):
    notice_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=NoticeKind.choices), max_length=len(NoticeKind), required=False, help_text="Default: all."
    )
    digest = serializers.ChoiceField(choices=Digest.choices, required=False)
    secret = Text(
        max_length=SECRET_MAX_CHARS, required=False, write_only=True, help_text="The URL of a Slack webhook, or the token of a bot."
    )


class ChannelCreate(ChannelTermsInput):
    name = Text(max_length=63)
    kind = serializers.ChoiceField(choices=ChannelKind.choices)
    slice = Reference(required=False, help_text="A workspace that the caller manages. Default: the caller himself.")
    target = Text(
        max_length=TARGET_MAX_CHARS, required=False, help_text="Mail address, URL of a webhook, or channel of a Slack bot; none otherwise."
    )


class ChannelChange(ChannelTermsInput):
    name = Text(max_length=63, required=False)
    target = Text(max_length=TARGET_MAX_CHARS, required=False)
    is_on = Flag(required=False)


class ChannelCode(StrictSerializer):
    code = Text(max_length=20)


class DeliverySerializer(ModelOutputSerializer[Delivery]):
    texts = serializers.SerializerMethodField(help_text="The text of the message.")

    class Meta:
        model = Delivery
        fields = ["id", "state", "is_test", "texts", "created_at", "due_at", "attempt_count", "sent_at", "error"]

    def get_texts(self, delivery: Delivery) -> list[str]:
        return [event.message for event in delivery.events.all()]


class ChannelViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Channel]):
    """Shows the caller's own channels and those of workspaces that the caller manages."""

    queryset = Channel.objects.none()
    serializer_class = ChannelSerializer
    change_body = ChannelChange
    keyless_actions = ("test", "confirm")  # a repetition is refused

    def get_queryset(self) -> QuerySet[Channel]:
        return channels_of(actor_of(self.request))

    def get_object(self) -> Channel:
        return channel_for(actor_of(self.request), self.kwargs["pk"])

    @extend_schema(request=ChannelCreate, responses={201: NewChannelSerializer})
    def create(self, request: Request) -> Response:
        data, actor = self.body(ChannelCreate), actor_of(request)
        reference = data.pop("slice", None)
        owner = actor if reference is None else tenancy().slice_to_manage(actor, reference)
        made = channel_create(owner=owner, terms=ChannelTerms(**data), actor=actor, now=self.now)
        return self._answer(made.channel, plain=made.plain or None)

    def replay(self, object_id: UUID | None) -> Response:
        return self._answer(channel_for(actor_of(self.request), str(object_id)), plain=None)

    def _answer(self, channel: Channel, *, plain: str | None) -> Response:
        return Response(NewChannelSerializer(channel, context={"plain": plain}).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChannelChange, responses={200: ChannelSerializer})
    def partial_update(self, request: Request, pk: str) -> Response:
        changes: dict[str, Any] = self.body(ChannelChange)
        changed = channel_change(channel=self.get_object(), changes=changes, actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(changed).data)

    def destroy(self, request: Request, pk: str) -> Response:
        channel_delete(channel=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=Nothing, responses={201: NewChannelSerializer})
    @action(detail=True, methods=["post"], url_path="replace-key")
    def replace_key(self, request: Request, pk: str) -> Response:
        """Replace the key of a webhook's signatures. EGS signs messages with both keys for a day."""
        self.body(Nothing)
        made = channel_replace_key(channel=self.get_object(), actor=actor_of(request), now=self.now)
        return self._answer(made.channel, plain=made.plain)

    @extend_schema(request=Nothing, responses={201: DeliverySerializer})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a test message. Its delivery tells how it went."""
        self.body(Nothing)
        made = channel_test(channel=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(DeliverySerializer(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChannelCode, responses={200: ChannelSerializer})
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, pk: str) -> Response:
        """Confirm a mail address by the code that was sent there."""
        code: str = self.body(ChannelCode)["code"]
        confirmed = channel_confirm(channel=self.get_object(), code=code, actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(confirmed).data)


class DeliveryViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Delivery]):
    queryset = Delivery.objects.none()
    serializer_class = DeliverySerializer
    keyless_actions = ("retry",)  # a repetition is refused until it was sent

    def _channel(self) -> Channel:
        return channel_for(actor_of(self.request), self.kwargs["channel_pk"])

    def get_queryset(self) -> QuerySet[Delivery]:
        return deliveries_of(self._channel(), actor_of(self.request))

    def get_object(self) -> Delivery:
        return delivery_for(self._channel(), self.kwargs["pk"], actor_of(self.request))

    @extend_schema(request=Nothing, responses={200: DeliverySerializer})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, channel_pk: str, pk: str) -> Response:
        """Send it again, with the same id."""
        self.body(Nothing)
        delivery_retry(delivery=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(self.get_object()).data)

"""Tells how to sign in without a token, and has the device flow. Nobody is signed in here."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.devices.services import device_login_start, device_login_take
from accounts.models import DeviceLogin, Scope
from accounts.tokens.api import NewTokenSerializer
from core.request_origin import client_address
from core.rest.fields import StrictSerializer, Text
from core.rest.views import ApiViewSet

NO_STORE: Final = {"Cache-Control": "no-store"}
WAYS: Final = [("device", "By a code that a person confirms on a page"), ("token", "By a token that a person makes on a page")]


class SignInSerializer(serializers.Serializer[Any]):
    ways = serializers.ListField(child=serializers.ChoiceField(choices=WAYS), help_text="The best one first.")


class DeviceLoginSerializer(serializers.Serializer[Any]):
    device_code = serializers.CharField(help_text="A secret: what the terminal asks for its token with.")
    user_code = serializers.CharField(help_text="What the person types, e.g. BCDF-GHJK.")
    page_url = serializers.CharField(help_text="Where the person types it.")
    link_url = serializers.CharField(help_text="The same page with the code in it.")
    expires_at = serializers.DateTimeField()
    interval_s = serializers.IntegerField(help_text="Wait so long between two tries to take the token.")


class DeviceLoginCreate(StrictSerializer):
    name = Text(max_length=63, help_text="What asks, as the person should know it.")
    scope = serializers.ChoiceField(choices=Scope.choices, required=False, help_text="Default: write. The person may grant less.")


class DeviceLoginTake(StrictSerializer):
    device_code = Text(max_length=100)


class SignInViewSet(ApiViewSet[DeviceLogin]):
    queryset = DeviceLogin.objects.none()
    serializer_class = SignInSerializer
    authentication_classes = []
    permission_classes = []

    @extend_schema(auth=[])
    def retrieve(self, request: Request) -> Response:
        """Tell by which ways a terminal gets a token here. Needs no token."""
        ways = [way for way, _ in WAYS if way != "device" or settings.EGS_DEVICE_LOGIN]
        return Response(SignInSerializer({"ways": ways}).data)


class DeviceLoginViewSet(ApiViewSet[DeviceLogin]):
    """Serves the device flow of RFC 8628, in the manner of this API: its errors are the `code` of problem documents. Needs no token."""

    queryset = DeviceLogin.objects.none()
    serializer_class = DeviceLoginSerializer
    authentication_classes = []
    permission_classes = []
    keyless_actions = ("create", "take")

    @extend_schema(request=DeviceLoginCreate, responses={201: DeviceLoginSerializer}, auth=[])
    def create(self, request: Request) -> Response:
        """Ask for a code, which a person who is signed in confirms on a page."""
        data = self.body(DeviceLoginCreate)
        scope = Scope(data.get("scope", Scope.WRITE))
        made = device_login_start(name=data["name"], scope=scope, address=client_address(request), now=self.now)
        page_url = request.build_absolute_uri(reverse("connect"))
        answer = {
            "device_code": made.device_code,
            "user_code": made.row.shown_code,
            "page_url": page_url,
            "link_url": f"{page_url}?{urlencode({'code': made.row.shown_code})}",
            "expires_at": made.row.expires_at,
            "interval_s": made.row.interval_s,
        }
        return Response(DeviceLoginSerializer(answer).data, status=status.HTTP_201_CREATED, headers=NO_STORE)

    @extend_schema(request=DeviceLoginTake, responses={201: NewTokenSerializer}, auth=[])
    @action(detail=False, methods=["post"])
    def take(self, request: Request) -> Response:
        """Take the token once the code is confirmed.

        Until then the code of the answer is `authorization_pending`; after `slow_down` wait 5 s longer each time. `access_denied`,
        `expired_token` and `invalid_grant` end it.
        """
        made = device_login_take(device_code=self.body(DeviceLoginTake)["device_code"], address=client_address(request), now=self.now)
        answer = NewTokenSerializer(made.token, context={"plain": made.plain}).data
        return Response(answer, status=status.HTTP_201_CREATED, headers=NO_STORE)

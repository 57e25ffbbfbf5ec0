from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import ApiToken, Scope
from accounts.services import token_issue, token_revoke
from core.rest.fields import StrictSerializer, Text, WholeNumber
from core.rest.output import ModelOutputSerializer
from core.rest.references import one_by_reference
from core.rest.views import ApiViewSet

LIFE_MAX_S = int(settings.EGS_TOKEN_LIFE_MAX.total_seconds())


class TokenSerializer(ModelOutputSerializer[ApiToken]):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))

    class Meta:
        model = ApiToken
        fields = ["id", "name", "key_id", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at"]
        read_only_fields = fields


class NewTokenSerializer(TokenSerializer):
    token = serializers.SerializerMethodField(help_text="The secret. Only this answer contains it; null in a replay.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]
        read_only_fields = fields

    def get_token(self, token: ApiToken) -> str | None:
        plain: str | None = self.context["plain"]
        return plain


class TokenCreate(StrictSerializer):
    name = Text(max_length=63)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices), allow_empty=False, max_length=8)
    expires_in_s = WholeNumber(min_value=1, max_value=LIFE_MAX_S, required=False, help_text="Default: 90 days.")


class TokenViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[ApiToken]):
    queryset = ApiToken.objects.none()
    serializer_class = TokenSerializer
    lookup_url_kwarg = "ref"

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(user=actor_of(self.request))

    def get_object(self) -> ApiToken:
        return one_by_reference(self.get_queryset(), self.kwargs["ref"], what="token")

    @extend_schema(request=TokenCreate, responses={201: NewTokenSerializer})
    def create(self, request: Request) -> Response:
        data = self.body(TokenCreate)
        issued = token_issue(user=actor_of(request), name=data["name"], scopes=data["scopes"], life=_life(data), now=self.now)
        return self._answer(issued.token, plain=issued.plain)

    def replay(self, object_id: UUID | None) -> Response:
        return self._answer(one_by_reference(self.get_queryset(), str(object_id), what="token"), plain=None)

    def _answer(self, token: ApiToken, *, plain: str | None) -> Response:
        return Response(NewTokenSerializer(token, context={"plain": plain}).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, ref: str) -> Response:
        """Revoke the token at once. It stays in the list."""
        token_revoke(token=self.get_object(), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _life(data: dict[str, Any]) -> timedelta:
    return timedelta(seconds=data["expires_in_s"]) if "expires_in_s" in data else settings.EGS_TOKEN_LIFE

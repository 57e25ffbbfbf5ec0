from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import ApiToken, Scope
from accounts.policy import own_workspace_ids
from accounts.tokens.services import TokenTerms, token_create, token_revoke, token_rotate
from core.rest.fields import Id, StrictSerializer, Text, WholeNumber
from core.rest.output import ModelOutputSerializer
from core.rest.references import one_by_reference
from core.rest.views import ApiViewSet

OVERLAP_S = 3600
LIFE_MAX_S = int(settings.EGS_TOKEN_LIFE_MAX.total_seconds())


class TokenSerializer(ModelOutputSerializer[ApiToken]):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))

    class Meta:
        model = ApiToken
        fields = ["id", "name", "key_id", "scopes", "networks", "slices", "created_at", "expires_at"]
        fields += ["last_used_at", "last_address", "revoked_at"]


class NewTokenSerializer(TokenSerializer):
    token = serializers.SerializerMethodField(help_text="The secret. Only this answer contains it; null in a replay.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]

    def get_token(self, token: ApiToken) -> str | None:
        plain: str | None = self.context["plain"]
        return plain


class Network(serializers.CharField):
    """Takes an address, or a network as 10.0.0.0/8."""

    def to_internal_value(self, data: Any) -> str:
        try:
            return str(ip_network(data if isinstance(data, str) else "", strict=False))
        except ValueError:
            raise serializers.ValidationError("Must be an address or a network, e.g. 10.0.0.0/8.") from None


class TokenBody(StrictSerializer):
    name = Text(max_length=63)
    expires_in_s = WholeNumber(min_value=1, max_value=LIFE_MAX_S, required=False, help_text="Default: 90 days.")
    networks = serializers.ListField(
        child=Network(), required=False, max_length=20, help_text="Addresses or networks that may use it, e.g. 10.0.0.0/8; none: all."
    )


class TokenCreate(TokenBody):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices), allow_empty=False, max_length=8)
    slices = serializers.ListField(
        child=Id(), required=False, max_length=50, help_text="Ids of workspaces that it is bound to; none: all of its user's."
    )

    def validate_slices(self, ids: list[UUID]) -> list[str]:
        """Gives the same answer for workspaces that do not exist and for those of others."""
        actor = actor_of(self.context["request"])
        if set(ids) - set(own_workspace_ids(actor).values_list("pk", flat=True)):
            raise serializers.ValidationError("You have no role in one of these workspaces.")
        return sorted(map(str, set(ids)))


class TokenRotation(StrictSerializer):
    overlap_s = WholeNumber(min_value=0, max_value=7 * 86_400, required=False, help_text="The old token works so long; default: an hour.")


class TokenViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[ApiToken]):
    queryset = ApiToken.objects.none()
    serializer_class = TokenSerializer
    lookup_url_kwarg = "ref"

    @property
    def write_scope(self) -> Scope:
        """Every token may end itself: `token_revoke` refuses what has more rights."""
        return Scope.READ if self.action == "destroy" else Scope.WRITE

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(user=actor_of(self.request))

    def get_object(self) -> ApiToken:
        return one_by_reference(self.get_queryset(), self.kwargs["ref"], what="token")

    @extend_schema(request=TokenCreate, responses={201: NewTokenSerializer})
    def create(self, request: Request) -> Response:
        data = self.body(TokenCreate)
        bounds = {name: data[name] for name in ("networks", "slices") if name in data}
        terms = TokenTerms(name=data["name"], scopes=data["scopes"], life=life_of(data), **bounds)
        issued = token_create(user=actor_of(request), terms=terms, actor=actor_of(request), now=self.now)
        return self.answer(issued.token, plain=issued.plain)

    @extend_schema(request=TokenRotation, responses={201: NewTokenSerializer})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, ref: str, **kwargs: Any) -> Response:
        """Make a new token with the same terms. The old one ends a little later, so that programs can change over without a gap."""
        overlap = timedelta(seconds=self.body(TokenRotation).get("overlap_s", OVERLAP_S))
        issued = token_rotate(token=self.get_object(), overlap=overlap, actor=actor_of(request), now=self.now)
        return self.answer(issued.token, plain=issued.plain)

    def replay(self, object_id: UUID | None) -> Response:
        return self.answer(one_by_reference(self.get_queryset(), str(object_id), what="token"), plain=None)

    def answer(self, token: ApiToken, *, plain: str | None) -> Response:
        return Response(NewTokenSerializer(token, context={"plain": plain}).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, ref: str, **kwargs: Any) -> Response:
        """Revoke the token at once. It stays in the list."""
        token_revoke(token=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


def life_of(data: dict[str, Any]) -> timedelta:
    return timedelta(seconds=data["expires_in_s"]) if "expires_in_s" in data else settings.EGS_TOKEN_LIFE

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import ApiToken, Scope
from accounts.policy import Verb
from accounts.tokens.api import NewTokenSerializer, TokenBody, TokenViewSet, life_of
from accounts.tokens.services import TokenTerms
from core.rest.fields import Flag, NewName, StrictSerializer
from core.rest.output import ModelOutputSerializer
from slices.api import SliceScopedViewSet
from slices.models import ROLES_OF_SERVICES, ServiceAccount
from slices.selectors import slice_for
from slices.service_accounts.selectors import service_account_of, service_accounts_of
from slices.service_accounts.services import (
    SCOPES,
    service_account_change,
    service_account_create,
    service_account_delete,
    service_token_create,
)


class ServiceAccountSerializer(ModelOutputSerializer[ServiceAccount]):
    id = serializers.UUIDField(source="user_id")
    name = serializers.CharField(source="user.name")
    role = serializers.ChoiceField(choices=ROLES_OF_SERVICES, allow_null=True, help_text="Null: the workspace is removed.")
    is_active = serializers.BooleanField(source="user.is_active")
    cluster = serializers.CharField(source="cluster.name", default=None, allow_null=True, help_text="Null: made in EGS, for tokens.")
    created_by = serializers.CharField(
        source="created_by.name", default=None, allow_null=True, help_text="Null: EGS met it in the cluster."
    )

    class Meta:
        model = ServiceAccount
        fields = ["id", "name", "role", "is_active", "cluster", "cluster_user", "created_by", "created_at"]


class ServiceAccountCreate(StrictSerializer):
    name = NewName(help_text="The workspace's name and a colon come before it.")
    role = serializers.ChoiceField(choices=ROLES_OF_SERVICES)


class ServiceAccountChange(StrictSerializer):
    """Omitted fields stay as they are."""

    role = serializers.ChoiceField(choices=ROLES_OF_SERVICES, required=False)
    is_active = Flag(required=False, help_text="False: its tokens end to work at once, and its cluster's objects are refused.")


class ServiceAccountViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, SliceScopedViewSet):
    """Programs of a workspace: members see them, owners manage them."""

    queryset = ServiceAccount.objects.none()
    serializer_class = ServiceAccountSerializer
    change_body = ServiceAccountChange
    ordering = ("user__name", "user_id")
    lookup_url_kwarg = "account"

    def get_queryset(self) -> QuerySet[ServiceAccount]:
        return service_accounts_of(self.slice())

    def get_object(self) -> ServiceAccount:
        return service_account_of(self.slice(), self.kwargs["account"])

    @extend_schema(request=ServiceAccountCreate, responses={201: ServiceAccountSerializer})
    def create(self, request: Request, slice: str) -> Response:
        """Make a program's account, whose tokens are made below it. Service accounts of a cluster come by themselves when they file."""
        slice_ = self.slice(Verb.MANAGE)
        made = service_account_create(slice_=slice_, **self.body(ServiceAccountCreate), actor=actor_of(request), now=self.now)
        row = service_account_of(slice_, str(made.pk))
        return Response(ServiceAccountSerializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ServiceAccountChange)
    def partial_update(self, request: Request, slice: str, account: str) -> Response:
        slice_ = self.slice(Verb.MANAGE)
        row, data = service_account_of(slice_, account), self.body(ServiceAccountChange)
        service_account_change(account=row, **data, actor=actor_of(request), now=self.now)
        return Response(ServiceAccountSerializer(service_account_of(slice_, account)).data)

    def destroy(self, request: Request, slice: str, account: str) -> Response:
        """Delete it: its tokens end at once. Requests and records keep its name."""
        slice_ = self.slice(Verb.MANAGE)
        service_account_delete(account=service_account_of(slice_, account), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ServiceTokenCreate(TokenBody):
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[(scope.value, scope.label) for scope in SCOPES]), allow_empty=False, max_length=8
    )


class ServiceTokenViewSet(TokenViewSet):
    """Owners of the workspace see and change the tokens of its service accounts. Each is bound to this workspace."""

    @property
    def write_scope(self) -> Scope:
        return Scope.WRITE

    def account(self) -> ServiceAccount:
        slice_ = slice_for(actor_of(self.request), self.kwargs["slice"], verb=Verb.MANAGE)
        return service_account_of(slice_, self.kwargs["account"])

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(user=self.account().user_id)

    @extend_schema(request=ServiceTokenCreate, responses={201: NewTokenSerializer})
    def create(self, request: Request, **kwargs: Any) -> Response:
        account, data = self.account(), self.body(ServiceTokenCreate)
        terms = TokenTerms(name=data["name"], scopes=data["scopes"], life=life_of(data), networks=data.get("networks", ()))
        issued = service_token_create(account=account, terms=terms, actor=actor_of(request), now=self.now)
        return self.answer(issued.token, plain=issued.plain)

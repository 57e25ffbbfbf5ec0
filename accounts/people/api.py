"""People, their sessions, and the groups that give roles on the platform."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import ROLES_OF_GROUPS, GroupRole, Identity, Login, PlatformRole, User
from accounts.oidc.providers import providers
from accounts.people.services import (
    group_role_add,
    group_role_remove,
    identity_set_groups,
    user_create,
    user_disable,
    user_enable,
    user_set_role,
)
from accounts.sessions import live_logins, logins_end
from core.errors import NotFound
from core.rest.fields import Flag, NewName, StrictSerializer, Text
from core.rest.output import ModelOutputSerializer
from core.rest.references import one_by_id, one_by_reference
from core.rest.views import ApiViewSet


class IdentitySerializer(ModelOutputSerializer[Identity]):
    class Meta:
        model = Identity
        fields = ["provider", "subject", "groups", "last_login_at"]


class UserSerializer(ModelOutputSerializer[User]):
    email = serializers.CharField(help_text="May be empty.")
    identities = IdentitySerializer(many=True, read_only=True)

    class Meta:
        model = User
        fields = ["id", "name", "email", "role", "role_source", "is_active", "is_service", "created_at", "identities"]


class UserCreate(StrictSerializer):
    name = NewName()
    email = serializers.EmailField(required=False, max_length=254)
    role = serializers.ChoiceField(choices=PlatformRole.choices, required=False)


class UserChange(StrictSerializer):
    """Omitted fields stay as they are."""

    role = serializers.ChoiceField(choices=PlatformRole.choices, required=False)
    is_active = Flag(required=False, help_text="False: the person's tokens, sessions and sockets end at once.")


class GroupsChange(StrictSerializer):
    provider = Text(max_length=31)
    groups = serializers.ListField(child=Text(max_length=255), allow_empty=True, max_length=1000, help_text="Replaces the whole list.")


class UserFilter(filters.FilterSet):
    provider = filters.CharFilter(label="Key of an identity provider.")
    subject = filters.CharFilter(
        label="What an identity provider calls the person: `sub`. Give the provider, too: two may use the same one."
    )

    def filter_queryset(self, queryset: QuerySet[User]) -> QuerySet[User]:
        """Both are of one identity."""
        given = {f"identities__{name}": value for name, value in self.form.cleaned_data.items() if value}
        return queryset.filter(**given).distinct()


class UserViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[User]):
    """Administrators manage people; auditors read them."""

    queryset = User.objects.none()
    serializer_class = UserSerializer
    change_body = UserChange
    filterset_class = UserFilter
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    admin_actions = ("list", "retrieve", "create", "partial_update", "groups", "end_logins")

    def get_queryset(self) -> QuerySet[User]:
        return User.objects.prefetch_related("identities")

    def get_object(self) -> User:
        return one_by_reference(self.get_queryset(), self.kwargs["ref"], what="user")

    @extend_schema(request=UserCreate, responses={201: UserSerializer})
    def create(self, request: Request) -> Response:
        """Add a person. Those who come through an identity provider are added when they first sign in."""
        made = user_create(**self.body(UserCreate), actor=actor_of(request), now=self.now)
        return Response(UserSerializer(self.get_queryset().get(pk=made.pk)).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=UserChange)
    def partial_update(self, request: Request, ref: str) -> Response:
        data, user, actor = self.body(UserChange), self.get_object(), actor_of(request)
        with transaction.atomic():
            if "role" in data:
                user_set_role(user=user, role=PlatformRole(data["role"]), actor=actor, now=self.now)
            if "is_active" in data:
                change = user_enable if data["is_active"] else user_disable
                change(user=user, actor=actor, now=self.now)
        return Response(UserSerializer(self.get_object()).data)

    @extend_schema(request=GroupsChange)
    @action(detail=True, methods=["post"])
    def groups(self, request: Request, ref: str) -> Response:
        """Say which groups the person is in, as at a sign-in: roles that depend on groups are given and taken at once."""
        data, user = self.body(GroupsChange), self.get_object()
        identities = list(user.identities.filter(provider=data["provider"]))
        if not identities:
            raise NotFound("identity of this provider")
        for identity in identities:
            identity_set_groups(identity=identity, groups=data["groups"], actor=actor_of(request), now=self.now)
        return Response(UserSerializer(self.get_object()).data)

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["post"], url_path="end-logins")
    def end_logins(self, request: Request, ref: str) -> Response:
        """End all sessions of the person's browsers. His tokens stay."""
        logins = Login.objects.filter(user=self.get_object())
        logins_end(logins, why="was signed out by an administrator", actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


class LoginSerializer(ModelOutputSerializer[Login]):
    provider = serializers.CharField(source="identity.provider", default=None, allow_null=True, help_text="Null: a token opened it.")
    token = serializers.CharField(source="token.name", default=None, allow_null=True, help_text="The name of the token that opened it.")

    class Meta:
        model = Login
        fields = ["id", "provider", "token", "address", "browser", "created_at", "last_seen_at", "expires_at"]


class LoginViewSet(mixins.ListModelMixin, ApiViewSet[Login]):
    """A login is an open session of one of the caller's own browsers."""

    queryset = Login.objects.none()
    is_personal = True
    serializer_class = LoginSerializer
    ordering = ("-created_at", "id")

    def get_queryset(self) -> QuerySet[Login]:
        return live_logins(now=self.now).filter(user=actor_of(self.request)).select_related("identity", "token")

    def destroy(self, request: Request, pk: str) -> Response:
        """End a session at once."""
        login = one_by_id(self.get_queryset(), pk, what="session")
        logins_end(Login.objects.filter(pk=login.pk), why="ended a session", actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


class GroupRoleSerializer(ModelOutputSerializer[GroupRole]):
    class Meta:
        model = GroupRole
        fields = ["id", "provider", "group", "role", "created_at"]


class ProviderKey(Text):
    """Holds the key of a configured identity provider."""

    def to_internal_value(self, data: Any) -> str:
        key = super().to_internal_value(data)
        if key not in {provider.key for provider in providers()}:
            raise serializers.ValidationError("No identity provider has this key.")
        return key


class GroupRoleCreate(StrictSerializer):
    provider = ProviderKey(max_length=31)
    group = Text(max_length=255)
    role = serializers.ChoiceField(choices=ROLES_OF_GROUPS)


class GroupRoleViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[GroupRole]):
    """People of these groups of identity providers have a role on the platform."""

    queryset = GroupRole.objects.none()
    serializer_class = GroupRoleSerializer
    ordering = ("provider", "group", "id")
    admin_actions = ("list", "retrieve", "create", "destroy")

    def get_queryset(self) -> QuerySet[GroupRole]:
        return GroupRole.objects.all()

    def get_object(self) -> GroupRole:
        return one_by_id(self.get_queryset(), self.kwargs["pk"], what="group")

    @extend_schema(request=GroupRoleCreate, responses={201: GroupRoleSerializer})
    def create(self, request: Request) -> Response:
        """People in the group get the role at once, and lose it when they leave the group."""
        data = self.body(GroupRoleCreate)
        made = group_role_add(
            provider=data["provider"], group=data["group"], role=PlatformRole(data["role"]), actor=actor_of(request), now=self.now
        )
        return Response(GroupRoleSerializer(made).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, pk: str) -> Response:
        group_role_remove(row=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

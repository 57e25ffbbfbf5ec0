"""Serves the groups of identity providers in a workspace, and the administrators of a project."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import User
from accounts.people.api import ProviderKey
from accounts.policy import Verb
from core.errors import NotFound
from core.rest.fields import Reference, StrictSerializer, Text
from core.rest.output import ModelOutputSerializer
from core.rest.references import is_object, one_by_id, one_by_reference
from core.rest.views import ApiViewSet
from slices.api import SliceScopedViewSet
from slices.models import Project, ProjectAdmin, Role, SliceGroup
from slices.roles.groups import group_add, group_remove
from slices.selectors import projects_visible_to
from slices.services import project_admin_add, project_admin_remove


class SliceGroupSerializer(ModelOutputSerializer[SliceGroup]):
    class Meta:
        model = SliceGroup
        fields = ["id", "provider", "group", "role", "created_at"]


class SliceGroupCreate(StrictSerializer):
    provider = ProviderKey(max_length=31)
    group = Text(max_length=255)
    role = serializers.ChoiceField(choices=Role.choices)


class SliceGroupViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, SliceScopedViewSet):
    queryset = SliceGroup.objects.none()
    serializer_class = SliceGroupSerializer
    ordering = ("provider", "group", "id")

    def get_queryset(self) -> QuerySet[SliceGroup]:
        return self.slice().groups.select_related("slice")

    def get_object(self) -> SliceGroup:
        return one_by_id(self.get_queryset(), self.kwargs["pk"], what="group")

    @extend_schema(request=SliceGroupCreate, responses={201: SliceGroupSerializer})
    def create(self, request: Request, slice: str) -> Response:
        """People in the group become members with this role, at once and when they sign in, and lose it when they leave the group."""
        slice_, data = self.slice(Verb.MANAGE), self.body(SliceGroupCreate)
        made = group_add(
            slice_=slice_, provider=data["provider"], group=data["group"], role=Role(data["role"]), actor=actor_of(request), now=self.now
        )
        return Response(SliceGroupSerializer(made).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, slice: str, pk: str) -> Response:
        self.slice(Verb.MANAGE)
        group_remove(group=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ProjectAdminSerializer(ModelOutputSerializer[ProjectAdmin]):
    id = serializers.UUIDField(source="user_id")
    name = serializers.CharField(source="user.name")

    class Meta:
        model = ProjectAdmin
        fields = ["id", "name", "created_at"]


class ProjectAdminCreate(StrictSerializer):
    user = Reference(max_length=63)


class ProjectAdminViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[ProjectAdmin]):
    queryset = ProjectAdmin.objects.none()
    serializer_class = ProjectAdminSerializer
    ordering = ("user__name", "id")
    lookup_url_kwarg = "admin"
    admin_actions = ("create", "destroy")

    def get_queryset(self) -> QuerySet[ProjectAdmin]:
        return self._project().admins.select_related("user", "project")

    def get_object(self) -> ProjectAdmin:
        row = self.get_queryset().filter(is_object(self.kwargs["admin"], path="user")).first()
        if row is None:
            raise NotFound("administrator of this project")
        return row

    @extend_schema(request=ProjectAdminCreate, responses={201: ProjectAdminSerializer})
    def create(self, request: Request, project: str) -> Response:
        """Let a person run the project: he acts as an owner in all its workspaces, and decides on its requests."""
        user = one_by_reference(User.objects.filter(is_active=True, is_service=False), self.body(ProjectAdminCreate)["user"], what="user")
        row = project_admin_add(project=self._project(), user=user, actor=actor_of(request), now=self.now)
        return Response(ProjectAdminSerializer(row).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, project: str, admin: str) -> Response:
        project_admin_remove(row=self.get_object(), actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def replay(self, object_id: Any) -> Response:
        self.kwargs["admin"] = str(object_id)
        return Response(ProjectAdminSerializer(self.get_object()).data, status=status.HTTP_201_CREATED)

    def _project(self) -> Project:
        return one_by_reference(projects_visible_to(actor_of(self.request)), self.kwargs["project"], what="project")

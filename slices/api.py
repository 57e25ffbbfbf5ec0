from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import PlatformRole, User
from accounts.permissions import ADMINS_ONLY
from accounts.policy import Verb, is_platform_admin
from accounts.tokens.api import TokenSerializer
from core.errors import NotAllowed, NotFound
from core.rest.fields import Flag, NewName, Reference, StrictSerializer
from core.rest.filters import Words
from core.rest.output import ModelOutputSerializer
from core.rest.references import is_object, one_by_reference
from core.rest.views import ApiViewSet
from inventory.selectors import cluster_for
from slices.invitations.services import member_add
from slices.models import Life, Membership, Project, Role, Slice
from slices.policies.fields import PolicyTerms, split_terms
from slices.policies.services import policy_change, policy_of
from slices.policies.terms import TERMS
from slices.selectors import own_memberships, projects_visible_to, slice_for, slice_run_by, slices_visible_to
from slices.services import (
    member_remove,
    project_create,
    project_set_end,
    project_set_league,
    slice_create,
    slice_set_clusters,
    slice_set_end,
    slice_set_home,
)

LIFE_FIELDS = ["life", "closed_at", "is_drained", "settled_at"]


class LifeFilter(filters.FilterSet):
    life = Words(choices=Life.choices)


# Projects.


class ProjectSerializer(ModelOutputSerializer[Project]):
    class Meta:
        model = Project
        fields = ["id", "name", "created_at", "ends_at", "in_league", *LIFE_FIELDS]


class ProjectCreate(StrictSerializer):
    name = NewName()


class ProjectChange(StrictSerializer):
    ends_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="It is archived then with its workspaces, see `closing/`; null: no end."
    )
    in_league = Flag(required=False, help_text="Its slices are compared in the efficiency league.")


class ProjectViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Project]):
    queryset = Project.objects.none()
    serializer_class = ProjectSerializer
    change_body = ProjectChange
    filterset_class = LifeFilter
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    admin_actions = ("create",)

    def get_queryset(self) -> QuerySet[Project]:
        return projects_visible_to(actor_of(self.request))

    def get_object(self) -> Project:
        return one_by_reference(self.get_queryset(), self.kwargs["ref"], what="project")

    @extend_schema(request=ProjectCreate, responses={201: ProjectSerializer})
    def create(self, request: Request) -> Response:
        data = self.body(ProjectCreate)
        made = project_create(name=data["name"], actor=actor_of(request), now=self.now)
        return Response(self.get_serializer(self.get_queryset().get(pk=made.pk)).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ProjectChange)
    def partial_update(self, request: Request, ref: str) -> Response:
        """Change its end, or whether its slices are in the efficiency league, as administrators of the project may, too.

        Omitted fields stay as they are.
        """
        project, data, actor = self.get_object(), self.body(ProjectChange), actor_of(request)
        if "ends_at" in data:
            if not is_platform_admin(actor):
                raise NotAllowed(ADMINS_ONLY)
            project_set_end(project=project, ends_at=data["ends_at"], actor=actor, now=self.now)
        if "in_league" in data:
            project_set_league(project=project, in_league=data["in_league"], actor=actor, now=self.now)
        return Response(self.get_serializer(self.get_object()).data)


# Slices.


class SliceSerializer(ModelOutputSerializer[Slice]):
    clusters = serializers.SerializerMethodField(help_text="Names of the clusters where its GPRs may run.")
    home = serializers.CharField(source="home.name", default=None, allow_null=True, help_text="The cluster that it prefers, or null.")
    role = serializers.SerializerMethodField(help_text="The caller's role; null for an administrator who is not a member.")

    class Meta:
        model = Slice
        fields = ["id", "name", "project", "project_id", "clusters", "home", "created_at", "ends_at", *LIFE_FIELDS, "role"]
        fields += ["policy_version", *TERMS]

    def get_clusters(self, slice_: Slice) -> list[str]:
        return [cluster.name for cluster in slice_.clusters.all()]

    def get_role(self, slice_: Any) -> Role | None:
        memberships: list[Membership] = slice_.own_memberships
        return Role(memberships[0].role) if memberships else None


class SliceCreate(StrictSerializer):
    name = NewName()
    project = Reference()
    clusters = serializers.ListField(
        child=Reference(), allow_empty=True, max_length=100, required=False, help_text="Where its GPRs may run."
    )


class SliceChange(PolicyTerms):
    """Omitted fields stay as they are. A field of the policy that is null is inherited."""

    clusters = serializers.ListField(
        child=Reference(), allow_empty=True, max_length=100, required=False, help_text="Replaces the whole list."
    )
    ends_at = serializers.DateTimeField(required=False, allow_null=True, help_text="It is archived then, see `closing/`; null: no end.")
    home = Reference(required=False, allow_null=True, help_text="The one of its clusters that it prefers; null: none.")


class SliceViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Slice]):
    queryset = Slice.objects.none()
    serializer_class = SliceSerializer
    change_body = SliceChange
    filterset_class = LifeFilter
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    admin_actions = ("create",)

    def get_queryset(self) -> QuerySet[Slice]:
        own = Prefetch("memberships", queryset=Membership.objects.filter(user=actor_of(self.request)), to_attr="own_memberships")
        return slices_visible_to(actor_of(self.request)).select_related("project", "home").prefetch_related("clusters", own)

    def get_object(self) -> Slice:
        return one_by_reference(self.get_queryset(), self.kwargs["ref"], what="slice")

    @extend_schema(request=SliceCreate, responses={201: SliceSerializer})
    def create(self, request: Request) -> Response:
        data, actor = self.body(SliceCreate), actor_of(request)
        project = one_by_reference(projects_visible_to(actor), data["project"], what="project")
        clusters = [cluster_for(actor, reference) for reference in data.get("clusters", [])]
        made = slice_create(name=data["name"], project=project, clusters=clusters, actor=actor, now=self.now)
        return Response(self.get_serializer(self.get_queryset().get(pk=made.pk)).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=SliceChange)
    def partial_update(self, request: Request, ref: str) -> Response:
        """Change the policy, the clusters, the home and the end, for requests from now on.

        An administrator of its project narrows what the project and the platform allow, and adds no cluster.
        """
        actor, slice_ = actor_of(request), slice_run_by(actor_of(request), ref)
        terms, data = split_terms(self.body(SliceChange))
        references, homes = data.pop("clusters", None), [data.pop("home")] if "home" in data else []
        ends = [data.pop("ends_at")] if "ends_at" in data else []
        with transaction.atomic():
            if terms:
                policy_change(policy=policy_of(slice_), terms=terms, actor=actor, now=self.now)
            if references is not None:
                clusters = [cluster_for(actor, reference) for reference in references]
                if not (is_platform_admin(actor) or set(clusters) <= set(slice_.clusters.all())):
                    raise NotAllowed(ADMINS_ONLY)
                slice_set_clusters(slice_=slice_, clusters=clusters, actor=actor, now=self.now)
            for home in homes:
                slice_set_home(slice_=slice_, home=cluster_for(actor, home) if home else None, actor=actor, now=self.now)
            for ends_at in ends:
                slice_set_end(slice_=slice_, ends_at=ends_at, actor=actor, now=self.now)
        return Response(self.get_serializer(self.get_object()).data)


class SliceScopedViewSet(ApiViewSet[Any]):
    """This is the base of viewsets under `slices/{slice}/`."""

    def slice(self, verb: Verb = Verb.SEE) -> Slice:
        return slice_for(actor_of(self.request), self.kwargs["slice"], verb=verb)


# Members.


class MemberSerializer(ModelOutputSerializer[Membership]):
    id = serializers.UUIDField(source="user_id", allow_null=True, help_text="Null: the invitation is not accepted yet.")
    name = serializers.CharField(source="user.name")

    class Meta:
        model = Membership
        fields = ["id", "name", "role", "is_by_group"]


class MemberChange(StrictSerializer):
    user = Reference(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)


class MemberViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, SliceScopedViewSet):
    queryset = Membership.objects.none()
    serializer_class = MemberSerializer
    ordering = ("user__name", "id")
    lookup_url_kwarg = "user"

    def get_queryset(self) -> QuerySet[Membership]:
        return self.slice().memberships.filter(user__is_service=False).select_related("user")

    def get_object(self) -> Membership:
        membership = self.get_queryset().filter(is_object(self.kwargs["user"], path="user")).first()
        if membership is None:
            raise NotFound("member")
        return membership

    @extend_schema(request=MemberChange, responses={201: MemberSerializer})
    def create(self, request: Request, slice: str) -> Response:
        """Add a member, or change a member's role.

        Users who share a workspace with the owner become members at once. All others are invited by name, id or mail address: the answer
        then has a null `id`, whether such a user exists or not. Invite people without an account by mail address. See `invitations/`.
        """
        slice_, data, actor = self.slice(Verb.MANAGE), self.body(MemberChange), actor_of(request)
        made = member_add(slice_=slice_, reference=data["user"], role=data["role"], actor=actor, now=self.now)
        if isinstance(made, Membership):
            return Response(MemberSerializer(made).data, status=status.HTTP_201_CREATED)
        return Response({"id": None, "name": made.name, "role": made.role, "is_by_group": False}, status=status.HTTP_201_CREATED)

    def replay(self, object_id: UUID | None) -> Response:
        if object_id is not None:
            return super().replay(object_id)
        data = self.body(MemberChange)
        return Response({"id": None, "name": data["user"], "role": data["role"], "is_by_group": False}, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, slice: str, user: str) -> Response:
        slice_ = self.slice(Verb.MANAGE)
        member_remove(slice_=slice_, user=self.get_object().user, actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)


# The caller.


class OwnSliceSerializer(ModelOutputSerializer[Membership]):
    id = serializers.UUIDField(source="slice_id")
    name = serializers.CharField(source="slice.name")
    project = serializers.CharField(source="slice.project.name")

    class Meta:
        model = Membership
        fields = ["id", "name", "project", "role"]


class MeSerializer(ModelOutputSerializer[User]):
    email = serializers.CharField(help_text="May be empty.")
    role = serializers.ChoiceField(choices=PlatformRole.choices, help_text="`member` also for others whose token lacks the scope admin.")
    is_admin = serializers.SerializerMethodField(help_text="Whether the role is admin.")
    slices = serializers.SerializerMethodField()
    token = serializers.SerializerMethodField(help_text="The token of this request.")

    class Meta:
        model = User
        fields = ["id", "name", "email", "role", "is_admin", "slices", "token"]

    def get_is_admin(self, user: User) -> bool:
        return is_platform_admin(user)

    @extend_schema_field(OwnSliceSerializer(many=True))
    def get_slices(self, user: User) -> Any:
        return OwnSliceSerializer(own_memberships(user), many=True).data

    @extend_schema_field(TokenSerializer)
    def get_token(self, user: User) -> Any:
        return TokenSerializer(self.context["request"].auth).data


class MeViewSet(ApiViewSet[User]):
    queryset = User.objects.none()
    serializer_class = MeSerializer

    def retrieve(self, request: Request) -> Response:
        return Response(self.get_serializer(actor_of(request)).data)

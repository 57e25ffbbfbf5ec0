from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import Verb
from core.names import name_fault
from core.rest.fields import NewName, StrictSerializer, Text, WholeNumber, Word
from core.rest.filters import Words
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from slices.invitations.services import invitee_fault
from slices.models import RequestState, Role, WorkspaceRequest
from slices.namespaces.api import NAMESPACE_MUST
from slices.namespaces.naming import DNS_LABEL
from slices.workspace_requests.selectors import workspace_request_for, workspace_requests_visible_to
from slices.workspace_requests.services import (
    WorkspaceTerms,
    terms_of,
    workspace_request_approve,
    workspace_request_cancel,
    workspace_request_create,
    workspace_request_refuse,
)

TERMS = ["name", "project", "purpose", "clusters", "namespaces", "people", "quota", "ends_at"]


class WorkspaceRequestSerializer(ModelOutputSerializer[WorkspaceRequest]):
    slice = serializers.CharField(source="slice.name", default=None, allow_null=True, help_text="The workspace that it became.")
    people = serializers.DictField(child=serializers.ChoiceField(choices=Role.choices))
    quota = serializers.DictField(child=serializers.IntegerField())

    class Meta:
        model = WorkspaceRequest
        fields = ["id", *TERMS, "state", "why", "requester", "created_at", "decided_by", "decided_at", "slice"]


class WorkspaceRequestChange(StrictSerializer):
    """Takes fields that an approval may change; omitted fields stay as requested."""

    name = NewName(required=False)
    project = NewName(required=False, help_text="It is made if there is none of this name.")
    clusters = serializers.ListField(child=NewName(), required=False, max_length=20, help_text="Names; an administrator may choose others.")
    namespaces = serializers.ListField(
        child=Word(DNS_LABEL, must=NAMESPACE_MUST), required=False, max_length=20, help_text="Bound in each of the clusters."
    )
    people = serializers.DictField(
        child=serializers.ChoiceField(choices=Role.choices),
        required=False,
        help_text="Name or mail address -> role. They are added or invited.",
    )
    quota = serializers.DictField(
        child=WholeNumber(min_value=0, max_value=1_000_000), required=False, help_text="Shape -> guaranteed GPUs."
    )
    ends_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Until when it is needed; null: without end.")

    def validate_people(self, people: dict[str, str]) -> dict[str, str]:
        return _bounded(people, invitee_fault)

    def validate_quota(self, quota: dict[str, int]) -> dict[str, int]:
        return _bounded(quota, name_fault)


class WorkspaceRequestCreate(WorkspaceRequestChange):
    name = NewName()
    project = NewName(help_text="It is made if there is none of this name.")
    purpose = Text(max_length=500, help_text="The people and the purpose.")


class Approval(WorkspaceRequestChange):
    why = Text(max_length=150, required=False)


class Refusal(StrictSerializer):
    why = Text(max_length=150)


class WorkspaceRequestFilter(filters.FilterSet):
    state = Words(choices=RequestState.choices)


class WorkspaceRequestViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[WorkspaceRequest]):
    queryset = WorkspaceRequest.objects.none()
    is_personal = True
    serializer_class = WorkspaceRequestSerializer
    filterset_class = WorkspaceRequestFilter

    def get_queryset(self) -> QuerySet[WorkspaceRequest]:
        return workspace_requests_visible_to(actor_of(self.request))

    def get_object(self) -> WorkspaceRequest:
        return workspace_request_for(actor_of(self.request), self.kwargs["pk"])

    @extend_schema(request=WorkspaceRequestCreate, responses={201: WorkspaceRequestSerializer})
    def create(self, request: Request) -> Response:
        """Ask for a workspace. An administrator decides."""
        terms = WorkspaceTerms(**self.body(WorkspaceRequestCreate))
        made = workspace_request_create(terms=terms, actor=actor_of(request), now=self.now)
        return Response(WorkspaceRequestSerializer(made).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, pk: str) -> Response:
        """Withdraw a request that waits."""
        actor = actor_of(request)
        row = workspace_request_for(actor, pk, verb=Verb.CHANGE)
        workspace_request_cancel(request=row, actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=Approval)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Set the workspace up, with what the body changes: all of it, or nothing."""
        actor = actor_of(request)
        row = workspace_request_for(actor, pk, verb=Verb.DECIDE)
        data = self.body(Approval)
        why, asked = data.pop("why", ""), terms_of(row)
        terms = WorkspaceTerms(**{name: data.get(name, getattr(asked, name)) for name in TERMS})
        workspace_request_approve(request=row, terms=terms, why=why, actor=actor, now=self.now)
        return self._answer()

    @extend_schema(request=Refusal)
    @action(detail=True, methods=["post"])
    def refuse(self, request: Request, pk: str) -> Response:
        actor = actor_of(request)
        row = workspace_request_for(actor, pk, verb=Verb.DECIDE)
        workspace_request_refuse(request=row, why=self.body(Refusal)["why"], actor=actor, now=self.now)
        return self._answer()

    def _answer(self) -> Response:
        return Response(WorkspaceRequestSerializer(self.get_object()).data)


def _bounded(given: dict[str, Any], fault_of: Callable[[str], str]) -> dict[str, Any]:
    if len(given) > 50:
        raise serializers.ValidationError("At most 50 names.")
    if faults := [fault for name in given if (fault := fault_of(name))]:
        raise serializers.ValidationError(f"One of the names is wrong. {faults[0]}")
    return given

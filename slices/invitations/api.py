from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import Verb
from core.rest.fields import Nothing
from core.rest.output import ModelOutputSerializer
from core.rest.references import one_by_reference
from core.rest.views import ApiViewSet
from slices.api import MemberSerializer, SliceScopedViewSet
from slices.invitations.services import invitation_accept, invitation_decline, invitation_for, invitation_withdraw, invitations_of
from slices.models import Invitation, Membership


class InvitationSerializer(ModelOutputSerializer[Invitation]):
    project = serializers.CharField(source="slice.project.name")

    class Meta:
        model = Invitation
        fields = ["id", "name", "slice", "project", "role", "invited_by", "created_at"]


class InvitationViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Invitation]):
    queryset = Invitation.objects.none()
    is_personal = True
    serializer_class = InvitationSerializer
    keyless_actions = ("accept", "decline")  # an invitation can be used only once anyway

    def get_queryset(self) -> QuerySet[Invitation]:
        return invitations_of(actor_of(self.request))

    def get_object(self) -> Invitation:
        return invitation_for(actor_of(self.request), self.kwargs["pk"])

    @extend_schema(request=Nothing, responses={200: MemberSerializer})
    @action(detail=True, methods=["post"])
    def accept(self, request: Request, pk: str) -> Response:
        self.body(Nothing)
        invitation, actor = self.get_object(), actor_of(request)
        invitation_accept(invitation=invitation, actor=actor, now=self.now)
        return Response(MemberSerializer(Membership.objects.get(slice=invitation.slice, user=actor)).data)

    @extend_schema(request=Nothing, responses={204: None})
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: str) -> Response:
        self.body(Nothing)
        invitation_decline(invitation=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class SliceInvitationViewSet(mixins.ListModelMixin, SliceScopedViewSet):
    """Lists for owners the invitations that nobody has accepted yet, whether or not such a user exists."""

    queryset = Invitation.objects.none()
    serializer_class = InvitationSerializer
    ordering = ("name", "id")
    lookup_url_kwarg = "invitation"

    def get_queryset(self) -> QuerySet[Invitation]:
        return self.slice(Verb.MANAGE).invitations.select_related("slice__project", "invited_by")

    def destroy(self, request: Request, slice: str, invitation: str) -> Response:
        row = one_by_reference(self.get_queryset(), invitation, what="invitation")
        invitation_withdraw(invitation=row, actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

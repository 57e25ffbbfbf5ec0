"""Serves the REST endpoints of `deputies/`."""

from __future__ import annotations

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import Verb, may
from core.errors import NotAllowed
from core.rest.fields import Reference, StrictSerializer
from core.rest.filters import Moment
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from slices.deputies.selectors import deputies_visible_to, deputy_for
from slices.deputies.services import deputy_name, deputy_withdraw
from slices.models import Deputy


class DeputySerializer(ModelOutputSerializer[Deputy]):
    name = serializers.CharField(source="__str__")
    approver = serializers.CharField(source="approver.name", help_text="The person who named the deputy.")
    user = serializers.CharField(source="user.name", help_text="The deputy.")

    class Meta:
        model = Deputy
        fields = ["id", "name", "approver", "user", "starts_at", "ends_at", "created_at"]


class DeputyCreate(StrictSerializer):
    user = Reference(max_length=63)
    starts_at = serializers.DateTimeField(required=False, help_text="Now by default.")
    ends_at = serializers.DateTimeField()


class DeputyFilter(filters.FilterSet):
    since = Moment("ends_at", lookup_expr="gt", label="Ends after this time.")


class DeputyViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Deputy]):
    queryset = Deputy.objects.none()
    serializer_class = DeputySerializer
    filterset_class = DeputyFilter
    is_personal = True

    def get_queryset(self) -> QuerySet[Deputy]:
        return deputies_visible_to(actor_of(self.request))

    def get_object(self) -> Deputy:
        return deputy_for(actor_of(self.request), self.kwargs["pk"])

    @extend_schema(request=DeputyCreate, responses={201: DeputySerializer})
    def create(self, request: Request) -> Response:
        """Name a deputy, who decides for the caller on what waits for approval. Administrators of the platform or of a project may
        call it.
        """
        data = self.body(DeputyCreate)
        times = {"starts_at": data.get("starts_at", self.now), "ends_at": data["ends_at"]}
        made = deputy_name(approver=actor_of(request), reference=data["user"], **times, now=self.now)
        return Response(DeputySerializer(made).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, pk: str) -> Response:
        """Withdraw the deputy at once."""
        row, actor = self.get_object(), actor_of(request)
        if not may(actor, Verb.CHANGE, row):
            raise NotAllowed("Only the approver who named a deputy, or an administrator of the platform, can withdraw the deputy.")
        deputy_withdraw(deputy=row, actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Nothing, Reference, StrictSerializer, WholeNumber
from core.rest.output import ModelOutputSerializer, OutputSerializer
from inventory.selectors import cluster_for
from slices.api import SliceScopedViewSet
from slices.kubeconfigs.services import kubeconfig_ask, kubeconfig_read, kubeconfig_revoke
from slices.models import KUBECONFIG_MIN_S, Kubeconfig
from slices.selectors import kubeconfig_for


class KubeconfigSerializer(ModelOutputSerializer[Kubeconfig]):
    """A kubeconfig says who may access which cluster until when. These answers contain no secret."""

    name = serializers.CharField(help_text="The prefix of its contexts in kubectl, before the namespace.")

    class Meta:
        model = Kubeconfig
        fields = ["id", "name", "cluster", "cluster_id", "namespace", "user", "user_id", "state", "detail", "duration_s"]
        fields += ["asked_at", "expires_at", "ended_at", "closed_at"]


class KubeconfigAsk(StrictSerializer):
    cluster = Reference()
    duration_s = WholeNumber(
        min_value=KUBECONFIG_MIN_S,
        max_value=settings.EGS_DURATION_MAX_S,
        required=False,
        help_text="Default: 8 hours, or the workspace's limit if that is less. The cluster may give less: see expires_at.",
    )


class KubeconfigTextSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    kubeconfig = serializers.CharField(help_text="The file for kubectl. Only this answer contains it.")
    expires_at = serializers.DateTimeField()


class KubeconfigViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, SliceScopedViewSet):
    queryset = Kubeconfig.objects.none()
    serializer_class = KubeconfigSerializer
    ordering = ("-asked_at", "id")
    keyless_actions = ("read",)  # it is shown only once
    lookup_url_kwarg = "kubeconfig"

    def get_queryset(self) -> QuerySet[Kubeconfig]:
        return self.slice().kubeconfigs.select_related("slice", "cluster", "user")

    def get_object(self) -> Kubeconfig:
        return kubeconfig_for(actor_of(self.request), self.slice(), self.kwargs["kubeconfig"])

    @extend_schema(request=KubeconfigAsk, responses={201: KubeconfigSerializer})
    def create(self, request: Request, slice: str) -> Response:
        """Ask for a kubeconfig. The cluster's agent makes it within seconds; then `read/` returns it once."""
        slice_, data, actor = self.slice(), self.body(KubeconfigAsk), actor_of(request)
        cluster = cluster_for(actor, data["cluster"])
        made = kubeconfig_ask(slice_=slice_, cluster=cluster, duration_s=data.get("duration_s"), actor=actor, now=self.now)
        return Response(self.get_serializer(self.get_queryset().get(pk=made.pk)).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=Nothing, responses=KubeconfigTextSerializer)
    @action(detail=True, methods=["post"])
    def read(self, request: Request, slice: str, kubeconfig: str) -> Response:
        """Return the kubeconfig, once and only for the user who asked for it. 409 `kubeconfig_not_made` while the agent makes it: try again
        in a second.
        """
        self.body(Nothing)
        row = self.get_object()
        text = kubeconfig_read(kubeconfig=row, actor=actor_of(request), now=self.now)
        row.refresh_from_db()
        answer = {"id": row.pk, "name": row.name, "kubeconfig": text, "expires_at": row.expires_at}
        return Response(KubeconfigTextSerializer(answer).data, headers={"Cache-Control": "no-store"})

    def destroy(self, request: Request, slice: str, kubeconfig: str) -> Response:
        """Revoke it. The cluster refuses it within seconds."""
        actor = actor_of(request)
        row = kubeconfig_for(actor, self.slice(), kubeconfig, write=True)
        kubeconfig_revoke(kubeconfig=row, actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

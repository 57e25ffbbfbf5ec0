from __future__ import annotations

from collections.abc import Callable

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import Verb
from core.rest.fields import Flag, Nothing, Reference, StrictSerializer, Word
from core.rest.output import ModelOutputSerializer
from core.rest.references import one_by_reference
from inventory.api import Why
from inventory.selectors import cluster_for
from slices.api import SliceScopedViewSet
from slices.models import NAMESPACE_STATES, Namespace
from slices.namespaces.naming import DNS_LABEL
from slices.namespaces.services import namespace_adopt, namespace_approve, namespace_bind, namespace_refuse, namespace_unbind

NAMESPACE_MUST = "Must be the name of a Kubernetes namespace."


class NamespaceSerializer(ModelOutputSerializer[Namespace]):
    state = serializers.ChoiceField(
        choices=NAMESPACE_STATES,
        help_text="PENDING: an administrator has to approve the name. All other states are reported by the cluster's agent.",
    )

    class Meta:
        model = Namespace
        fields = ["id", "name", "cluster", "cluster_id", "created_at", "state", "detail", "may_adopt"]


class NamespaceBind(StrictSerializer):
    name = Word(DNS_LABEL, must=NAMESPACE_MUST)
    cluster = Reference()
    may_adopt = Flag(default=False, help_text="For administrators: take the namespace over with its contents if it exists already.")


class NamespaceViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, SliceScopedViewSet):
    queryset = Namespace.objects.none()
    serializer_class = NamespaceSerializer
    ordering = ("name", "id")
    lookup_url_kwarg = "namespace"
    admin_actions = ("adopt", "approve", "refuse")

    def get_queryset(self) -> QuerySet[Namespace]:
        return Namespace.with_pending.filter(slice=self.slice()).select_related("slice", "cluster")

    @extend_schema(request=NamespaceBind, responses={201: NamespaceSerializer})
    def create(self, request: Request, slice: str) -> Response:
        """Bind a namespace: its pods may use the slice's nodes, and no other slice may bind it.

        A name that the policy's `namespace_patterns` do not cover stays PENDING until an administrator decides.
        """
        slice_, data, actor = self.slice(Verb.MANAGE), self.body(NamespaceBind), actor_of(request)
        cluster = cluster_for(actor, data["cluster"])
        namespace = namespace_bind(
            slice_=slice_, cluster=cluster, name=data["name"], actor=actor, now=self.now, may_adopt=data["may_adopt"]
        )
        return Response(NamespaceSerializer(namespace).data, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, slice: str, namespace: str) -> Response:
        """Unbind it, or withdraw the request for it."""
        self.slice(Verb.MANAGE)
        bound = self.get_object()
        namespace_unbind(namespace=bound, actor=actor_of(request), now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def adopt(self, request: Request, slice: str, namespace: str) -> Response:
        """Let the workspace take over a namespace that existed before, with its contents."""
        self.body(Nothing)
        return self._decide(namespace_adopt)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, slice: str, namespace: str) -> Response:
        """Bind a PENDING namespace."""
        self.body(Nothing)
        return self._decide(namespace_approve)

    @extend_schema(request=Why, responses={204: None})
    @action(detail=True, methods=["post"])
    def refuse(self, request: Request, slice: str, namespace: str) -> Response:
        """Remove a PENDING namespace. The reason is in the workspace's events."""
        data = self.body(Why)
        namespace_refuse(namespace=self.get_object(), actor=actor_of(request), now=self.now, **data)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def get_object(self) -> Namespace:
        return one_by_reference(self.get_queryset(), self.kwargs["namespace"], what="namespace")

    def _decide(self, service: Callable[..., None]) -> Response:
        row = self.get_object()
        service(namespace=row, actor=actor_of(self.request), now=self.now)
        return Response(NamespaceSerializer(self.get_queryset().get(pk=row.pk)).data)

"""Serves `prometheus/`."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.outbound import URL_MAX_CHARS
from core.rest.fields import Nothing, StrictSerializer, Verbatim, WholeNumber
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.views import ApiViewSet
from inventory.models import Cluster
from observability.prometheus.models import (
    BEYOND_LEAST_S,
    BEYOND_MOST_S,
    CA_MAX_CHARS,
    MATCHERS_MAX_CHARS,
    USERNAME_MAX_CHARS,
    Auth,
    PrometheusSource,
)
from observability.prometheus.services import (
    SECRET_MAX_CHARS,
    PrometheusChange,
    clusters_with_sources,
    prometheus_change,
    prometheus_test,
    source_for,
    sources_of,
)

CHANGEABLE = ("url", "auth", "username", "secret", "ca_pem", "matchers", "beyond_s")


class PrometheusSerializer(ModelOutputSerializer[PrometheusSource]):
    id = serializers.UUIDField(source="cluster_id", help_text="The cluster's.")
    name = serializers.CharField(help_text="The cluster's.")
    url = serializers.CharField(help_text="Empty: the cluster has none.")

    class Meta:
        model = PrometheusSource
        fields = ["id", "name", "url", "auth", "username", "ca_pem", "matchers", "beyond_s"]


class PrometheusChangeSerializer(StrictSerializer):
    """Omitted fields stay as they are."""

    url = Verbatim(max_length=URL_MAX_CHARS, required=False, trim_whitespace=True, help_text="Empty: it is no longer used.")
    auth = serializers.ChoiceField(choices=Auth.choices, required=False)
    username = Verbatim(max_length=USERNAME_MAX_CHARS, required=False, trim_whitespace=True)
    secret = Verbatim(
        max_length=SECRET_MAX_CHARS, required=False, trim_whitespace=True, help_text="The token or password; empty: the one that is there."
    )
    ca_pem = Verbatim(max_length=CA_MAX_CHARS, required=False, trim_whitespace=True, help_text="Certificates to trust, as PEM.")
    matchers = Verbatim(max_length=MATCHERS_MAX_CHARS, required=False, trim_whitespace=True, help_text='As cluster="aurora".')
    beyond_s = WholeNumber(
        min_value=BEYOND_LEAST_S, max_value=BEYOND_MOST_S, required=False, help_text="Ranges that begin longer ago than this come from it."
    )


class PrometheusAnswerSerializer(OutputSerializer[Any]):
    is_ok = serializers.BooleanField()
    text = serializers.CharField()


class PrometheusViewSet(ApiViewSet[Any]):
    """The Prometheus of each cluster provides long courses of GPUs."""

    queryset = Cluster.objects.none()  # its row is locked for a change
    serializer_class = PrometheusSerializer
    change_body = PrometheusChangeSerializer
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    keyless_actions: ClassVar[tuple[str, ...]] = ("test",)
    admin_actions = ("list", "retrieve", "partial_update", "test")

    @extend_schema(responses=PrometheusSerializer(many=True))
    def list(self, request: Request) -> Response:
        page = self.paginate_queryset(clusters_with_sources(actor_of(request)))
        return self.get_paginated_response(PrometheusSerializer(sources_of(page or []), many=True).data)

    def retrieve(self, request: Request, ref: str) -> Response:
        return Response(PrometheusSerializer(source_for(actor_of(request), ref)).data)

    @extend_schema(request=PrometheusChangeSerializer)
    def partial_update(self, request: Request, ref: str) -> Response:
        data, source = self.body(PrometheusChangeSerializer), source_for(actor_of(request), ref)
        change = PrometheusChange(**{name: data[name] for name in CHANGEABLE if name in data})  # type: ignore[typeddict-item]
        prometheus_change(cluster=source.cluster, change=change, actor=actor_of(request), now=self.now)
        return Response(PrometheusSerializer(source_for(actor_of(request), ref)).data)

    @extend_schema(request=Nothing, responses=PrometheusAnswerSerializer)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, ref: str) -> Response:
        """Ask it about some GPUs of the cluster."""
        self.body(Nothing)
        is_ok, text = prometheus_test(source_for(actor_of(request), ref), now=self.now)
        return Response(PrometheusAnswerSerializer({"is_ok": is_ok, "text": text}).data)

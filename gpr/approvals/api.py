"""Serves the REST endpoints of `approvals/`. A decision is made with `gprs/{id}/approve/` or `gprs/{id}/reject/`."""

from __future__ import annotations

from typing import Any

from django_filters import rest_framework as filters
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.filters import Moment, ReferenceFilter
from core.rest.output import ModelOutputSerializer
from core.rest.views import ApiViewSet
from gpr.approvals.selectors import ApproverRights
from gpr.models import Gpr
from gpr.requests.selectors import DUE_ORDER, approvals_visible_to


class ApprovalSerializer(ModelOutputSerializer[Gpr]):
    project = serializers.CharField(source="slice.project.name")
    approval_reasons = serializers.ListField(child=serializers.CharField())
    decide_by_at = serializers.DateTimeField(help_text="EGS rejects it then unless somebody has decided. Null: it waits without end.")
    why_not = serializers.SerializerMethodField(help_text="The reason why the caller may not approve it; empty: the caller may.")
    deputy_for = serializers.SerializerMethodField(help_text="The approver for whom the caller would decide; null: the caller.")

    class Meta:
        model = Gpr
        fields = ["id", "name", "slice", "project", "owner", "created_at", "shape", "min_gpu_memory_gib", "nodes", "gpus_per_node"]
        fields += ["duration_s", "priority", "may_evict", "run_checks", "is_booking", "earliest_start_at", "version", "policy_version"]
        fields += ["approval_reasons", "decide_by_at", "why_not", "deputy_for"]

    def get_why_not(self, gpr: Gpr) -> str:
        whys: dict[Any, str] = self.context["whys"]
        return whys[gpr.pk]

    def get_deputy_for(self, gpr: Gpr) -> str | None:
        rights: ApproverRights = self.context["rights"]
        deputy = rights.deputy_for(gpr)
        return deputy.approver.name if deputy else None


class ApprovalFilter(filters.FilterSet):
    slice = ReferenceFilter("slice")
    project = ReferenceFilter("slice__project")
    before = Moment("decide_by_at", lookup_expr="lt", label="To be decided before this time.")


class ApprovalViewSet(ApiViewSet[Gpr]):
    queryset = Gpr.objects.none()
    serializer_class = ApprovalSerializer
    filterset_class = ApprovalFilter
    ordering = DUE_ORDER

    def list(self, request: Request) -> Response:
        """List what waits for the caller's decision, or for that of people whose deputy he is, the most urgent first."""
        actor = actor_of(request)
        gprs = self.paginate_queryset(self.filter_queryset(approvals_visible_to(actor, now=self.now))) or []
        rights = ApproverRights.load(actor, now=self.now)
        context = {"rights": rights, "whys": rights.whys_not(gprs, now=self.now)}
        return self.get_paginated_response(ApprovalSerializer(gprs, many=True, context=context).data)

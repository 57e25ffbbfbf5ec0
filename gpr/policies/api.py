"""Serves the REST endpoints of `policies/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.policy import is_overseer
from core.rest.fields import Text, WholeNumber
from core.rest.filters import ReferenceFilter, Words
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.views import ApiViewSet
from gpr.models import Gpr
from gpr.policies.breaches import Found, breaches_after, breaches_now, follows, why_it_stands
from gpr.requests.filters import GprFilter, ProjectFilter
from gpr.requests.inputs import VERSION_HELP, WHY_MAX_CHARS
from gpr.requests.selectors import gprs_visible_to
from slices.models import PLATFORM_POLICY, Policy, PolicyVersion
from slices.policies.fields import PolicyTerms, split_terms
from slices.policies.selectors import (
    BUILT_IN,
    POLICY_ORDER,
    PolicyView,
    kind_of,
    policies_visible_to,
    policy_decided_by,
    policy_for,
    policy_views,
)
from slices.policies.services import changed_names, policy_change, refuse_wider

KINDS = ["platform", "project", "slice"]
PREVIEW_MAX = 100


class PolicySerializer(OutputSerializer[Any]):
    id = serializers.UUIDField(source="policy.pk")
    name = serializers.CharField(source="policy", help_text="Name of the slice or project, or `platform`.")
    kind = serializers.SerializerMethodField()
    project = serializers.CharField(source="policy.project.name", default=None, allow_null=True, help_text="Null: not a project's.")
    slice = serializers.CharField(source="policy.slice.name", default=None, allow_null=True, help_text="Null: not a slice's.")
    version = serializers.IntegerField(source="policy.version", help_text="Number of its last change, over all policies; 0: never changed.")
    own = serializers.DictField(source="policy.terms", help_text="The terms that it sets itself.")
    effective = serializers.SerializerMethodField(help_text="All that holds, inherited values included.")
    sources = serializers.SerializerMethodField(help_text="Where each value comes from.")

    @extend_schema_field(serializers.ChoiceField(choices=KINDS))
    def get_kind(self, view: PolicyView) -> str:
        return kind_of(view.policy)

    @extend_schema_field(serializers.DictField())
    def get_effective(self, view: PolicyView) -> dict[str, Any]:
        return {line.term.name: line.value for line in view.lines}

    @extend_schema_field(serializers.DictField(child=serializers.ChoiceField(choices=[BUILT_IN, *KINDS])))
    def get_sources(self, view: PolicyView) -> dict[str, str]:
        return {line.term.name: line.source for line in view.lines}


class PolicyChange(PolicyTerms):
    why = Text(max_length=WHY_MAX_CHARS, required=False, allow_blank=True)
    version = WholeNumber(min_value=0, required=False, help_text=VERSION_HELP)


class TermChangeSerializer(OutputSerializer[Any]):
    term = serializers.CharField()
    before = serializers.JSONField(allow_null=True, help_text="Null: inherited.")
    after = serializers.JSONField(allow_null=True)


class PolicyVersionSerializer(ModelOutputSerializer[PolicyVersion]):
    id = serializers.IntegerField(help_text="Rises over all policies.")
    made_by = serializers.CharField(source="made_by.name", default=None, allow_null=True, help_text="Null: EGS itself.")
    changes = serializers.SerializerMethodField()

    class Meta:
        model = PolicyVersion
        fields = ["id", "made_at", "made_by", "why", "changes"]

    @extend_schema_field(TermChangeSerializer(many=True))
    def get_changes(self, row: PolicyVersion) -> list[dict[str, Any]]:
        names = changed_names(row.before, row.terms)
        return [{"term": name, "before": row.before.get(name), "after": row.terms.get(name)} for name in names]


class PolicyBreachSerializer(ModelOutputSerializer[Gpr]):
    rules = serializers.SerializerMethodField(help_text="The rules that it breaks.")
    note = serializers.SerializerMethodField(help_text="Why it is there all the same; in a preview, what happens to it.")

    class Meta:
        model = Gpr
        fields = ["id", "name", "slice", "owner", "state", "is_booking", "policy_version", "rules", "note"]

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_rules(self, gpr: Gpr) -> list[str]:
        found: Found = self.context["found"]
        return [breach.text for breach in found[gpr.pk]]

    def get_note(self, gpr: Gpr) -> str:
        return follows(gpr) if self.context["is_preview"] else why_it_stands(gpr)


class PolicyPreviewSerializer(OutputSerializer[Any]):
    count = serializers.IntegerField(help_text="Requests that would break a rule that they keep now.")
    breaches = PolicyBreachSerializer(many=True, help_text=f"The newest {PREVIEW_MAX} of them.")


class PolicyFilter(filters.FilterSet):
    kind = Words(choices=[(kind, kind) for kind in KINDS], method="by_kind")
    project = ProjectFilter(label="Id or name. Includes those of its slices.")
    slice = ReferenceFilter("slice", label="Id or name.")

    def by_kind(self, rows: QuerySet[Policy], name: str, value: Sequence[str]) -> QuerySet[Policy]:
        of = {"platform": Q(pk=PLATFORM_POLICY), "project": Q(project__isnull=False), "slice": Q(slice__isnull=False)}
        meant = Q(pk__in=[])
        for kind in value or KINDS:
            meant |= of[kind]
        return rows.filter(meant)


class PolicyViewSet(ApiViewSet[Any]):
    queryset = Policy.objects.none()
    serializer_class = PolicySerializer
    change_body = PolicyChange
    filterset_class = PolicyFilter
    ordering = POLICY_ORDER
    read_actions = ("preview",)

    def list(self, request: Request) -> Response:
        """List policies, the platform's first. A member sees those of his slices, an administrator of a project also the project's."""
        rows = self.paginate_queryset(self.filter_queryset(policies_visible_to(actor_of(request)))) or []
        return self.get_paginated_response(PolicySerializer(policy_views(rows), many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=PolicyChange)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the policy for requests from now on; nothing that runs or waits ends. Each change makes a version."""
        terms, given = split_terms(self.body(PolicyChange))
        actor = actor_of(request)
        policy_change(policy=policy_decided_by(actor, pk), terms=terms, actor=actor, now=self.now, **given)
        return self._answer(pk)

    @extend_schema(request=PolicyChange, responses={200: PolicyPreviewSerializer})
    @action(detail=True, methods=["post"])
    def preview(self, request: Request, pk: str) -> Response:
        """Tell which requests would break the changed policy, and what happens to them. Nothing is written."""
        terms, _ = split_terms(self.body(PolicyChange))
        actor = actor_of(request)
        policy = policy_for(actor, pk) if is_overseer(actor) else policy_decided_by(actor, pk)
        refuse_wider(policy, terms, actor)
        found = breaches_after(policy, terms)
        gprs = Gpr.objects.filter(pk__in=found).select_related("slice", "owner").order_by("-created_at", "pk")[:PREVIEW_MAX]
        rows = PolicyBreachSerializer(gprs, many=True, context={"found": found, "is_preview": True}).data
        return Response({"count": len(found), "breaches": rows})

    def _answer(self, pk: str) -> Response:
        (view,) = policy_views([policy_for(actor_of(self.request), pk)])
        return Response(PolicySerializer(view).data)


class PolicyVersionViewSet(ApiViewSet[PolicyVersion]):
    """List the versions of a policy, the newest first."""

    queryset = PolicyVersion.objects.none()
    serializer_class = PolicyVersionSerializer
    ordering = ("-id",)

    def list(self, request: Request, policy_pk: str) -> Response:
        versions = policy_for(actor_of(request), policy_pk).versions.select_related("made_by")
        rows = self.paginate_queryset(self.filter_queryset(versions))
        return self.get_paginated_response(PolicyVersionSerializer(rows, many=True).data)


class PolicyBreachViewSet(ApiViewSet[Gpr]):
    """List running, waiting and booked requests that break the policy in force, the newest first."""

    queryset = Gpr.objects.none()
    serializer_class = PolicyBreachSerializer
    filterset_class = GprFilter

    def list(self, request: Request, policy_pk: str) -> Response:
        actor = actor_of(request)
        found = breaches_now(policy_for(actor, policy_pk))
        rows = self.paginate_queryset(self.filter_queryset(gprs_visible_to(actor).filter(pk__in=found)))
        context = {"found": found, "is_preview": False}
        return self.get_paginated_response(PolicyBreachSerializer(rows, many=True, context=context).data)

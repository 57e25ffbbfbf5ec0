"""Serves `remediation/` and `remediation-policies/`."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from core.rest.fields import Flag, Nothing, StrictSerializer, Text, WholeNumber
from core.rest.filters import ReferenceFilter, Words, YesNo
from core.rest.nested import nested
from core.rest.output import ModelOutputSerializer, OutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from inventory.api import HolderSerializer, Why
from inventory.check_api import CheckResultSerializer
from inventory.models import Cluster, Repair, StepResult
from observability.models import RemediationCase, RemediationPolicy
from observability.remediation.cases import case_approve, case_give_back, case_keep, case_resume
from observability.remediation.faults import ACTION_NAMES, LIMIT_NAMES, Action
from observability.remediation.models import ACTIONS, REPAIR_ACTIONS, TRIES_MAX, CaseState, Mode
from observability.remediation.policies import (
    LIMIT_MAX,
    LISTED_MAX,
    XID_MAX,
    RemediationTerms,
    clusters_with_policies,
    policies_of,
    policy_for,
    remediation_policy_change,
)
from observability.remediation.selectors import case_for, cases_visible_to, log_text, preview_of

WHY_MAX_CHARS = 150
CHANGEABLE = (
    *("watches_faults", "check_node", "restart_driver", "reset_gpus", "reboot_node"),
    *("tries_max", "returns_max", "ignored_xids", "limits"),
)


class FaultSerializer(OutputSerializer[Any]):
    at = serializers.SerializerMethodField()
    gpu = serializers.IntegerField(help_text="The index of the GPU.")
    uuid = serializers.CharField()
    metric = serializers.CharField()
    value = serializers.IntegerField()
    before = serializers.IntegerField()
    text = serializers.CharField()
    action = serializers.ChoiceField(choices=ACTIONS)

    @extend_schema_field(OpenApiTypes.DATETIME)
    def get_at(self, fault: dict[str, Any]) -> str:
        return str(fault["at"])


class CaseSerializer(ModelOutputSerializer[RemediationCase]):
    name = serializers.CharField(help_text="The node's name.")
    cluster_id = serializers.UUIDField(source="node.cluster_id")
    cluster = serializers.CharField(source="node.cluster.name")
    next = serializers.SerializerMethodField(help_text="The next action, in words; empty: none.")
    evidence = FaultSerializer(many=True)
    closed_by = serializers.CharField(source="closed_by.name", allow_null=True, default=None)
    repair_count = serializers.IntegerField()

    class Meta:
        model = RemediationCase
        fields = ["id", "name", "node_id", "node", "cluster_id", "cluster", "opened_at", "cause", "code", "why", "state", "state_why"]
        fields += ["action", "next", "evidence", "closed_at", "closed_by", "repair_count"]

    def get_next(self, case: RemediationCase) -> str:
        return "" if case.closed_at is not None else ACTION_NAMES[case.action]


class RepairStepSerializer(ModelOutputSerializer[StepResult]):
    id = SealedId()
    name = serializers.CharField(source="step")
    results = CheckResultSerializer(many=True)

    class Meta:
        model = StepResult
        fields = ["id", "name", "attempt", "outcome", "started_at", "ended_at", "blames_node", "log", "results"]


class RepairSerializer(ModelOutputSerializer[Repair]):
    name = serializers.SerializerMethodField(help_text="What was done.")
    begun_by = serializers.CharField(source="begun_by.name", allow_null=True, default=None, help_text="Null: EGS itself.")
    steps = RepairStepSerializer(many=True)

    class Meta:
        model = Repair
        fields = ["id", "name", "begun_at", "begun_by", "phase", "failure", "passed_at", "released_at", "steps"]

    def get_name(self, repair: Repair) -> str:
        return ACTION_NAMES[repair.action or Action.CHECK]


class PreviewSerializer(OutputSerializer[Any]):
    """Shows the effect of an approval."""

    steps = serializers.ListField(child=serializers.CharField(), help_text="In this order.")
    why_not_now = serializers.CharField(help_text="The reason why it waits; empty: it begins at once.")
    held_by = serializers.SerializerMethodField()

    @extend_schema_field(HolderSerializer(many=True))
    def get_held_by(self, preview: Any) -> Any:
        return [nested(HolderSerializer, row) for row in preview.boxes]


class CaseDetailSerializer(CaseSerializer):
    repairs = RepairSerializer(many=True)
    preview = serializers.SerializerMethodField(help_text="The preview of the next action; null: the case is closed.")

    class Meta(CaseSerializer.Meta):
        fields = [*CaseSerializer.Meta.fields, "repairs", "preview"]

    @extend_schema_field(PreviewSerializer(allow_null=True))
    def get_preview(self, case: RemediationCase) -> Any:
        return None if case.closed_at is not None else nested(PreviewSerializer, preview_of(case, case.action))


class CaseLogSerializer(OutputSerializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    text = serializers.CharField(help_text="It names no tenant.")


class RepairApproval(StrictSerializer):
    action = serializers.ChoiceField(choices=REPAIR_ACTIONS, required=False, help_text="Omitted: the next one.")
    why = Text(max_length=WHY_MAX_CHARS, required=False, allow_blank=True)


class CaseFilter(filters.FilterSet):
    state = Words(choices=CaseState.choices)
    cluster = ReferenceFilter("node__cluster")
    node = ReferenceFilter("node")
    is_open = YesNo(pick=lambda is_open: Q(closed_at__isnull=is_open), label="Whether the node is still set aside.")


class RemediationViewSet(mixins.ListModelMixin, ApiViewSet[RemediationCase]):
    """These nodes are set aside; each says why, and what is done about it."""

    queryset = RemediationCase.objects.none()
    serializer_class = CaseSerializer
    filterset_class = CaseFilter
    ordering = ("-opened_at", "id")
    admin_actions = ("list", "retrieve", "approve", "keep", "give_back", "resume", "log")

    def get_queryset(self) -> QuerySet[RemediationCase]:
        return cases_visible_to(actor_of(self.request))

    @extend_schema(responses=CaseDetailSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=RepairApproval, responses=CaseDetailSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Repair and check the node as soon as no request holds it. It returns when all checks have passed."""
        data, case = self.body(RepairApproval), case_for(actor_of(request), pk)
        wanted = data.get("action", case.action)
        case_approve(case=case, action=wanted, actor=actor_of(request), why=data.get("why", ""), now=self.now)
        return self._answer(pk)

    @extend_schema(request=Why, responses=CaseDetailSerializer)
    @action(detail=True, methods=["post"])
    def keep(self, request: Request, pk: str) -> Response:
        """EGS does nothing more to the node until somebody resumes or returns it."""
        why = self.body(Why)["why"]
        case_keep(case=case_for(actor_of(request), pk), actor=actor_of(request), why=why, now=self.now)
        return self._answer(pk)

    @extend_schema(request=Why, responses=CaseDetailSerializer)
    @action(detail=True, methods=["post"], url_path="give-back")
    def give_back(self, request: Request, pk: str) -> Response:
        """Use the node again without checks."""
        why = self.body(Why)["why"]
        case_give_back(case=case_for(actor_of(request), pk), actor=actor_of(request), why=why, now=self.now)
        return self._answer(pk)

    @extend_schema(request=Nothing, responses=CaseDetailSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """EGS goes on as the policy of the cluster says."""
        self.body(Nothing)
        case_resume(case=case_for(actor_of(request), pk), actor=actor_of(request), now=self.now)
        return self._answer(pk)

    @extend_schema(responses=CaseLogSerializer)
    @action(detail=True, methods=["get"])
    def log(self, request: Request, pk: str) -> Response:
        """Return the log for the vendor."""
        case = case_for(actor_of(request), pk)
        return Response(CaseLogSerializer({"id": case.pk, "name": case.name, "text": log_text(case, now=self.now)}).data)

    def _answer(self, pk: str) -> Response:
        return Response(CaseDetailSerializer(case_for(actor_of(self.request), pk), context=self.get_serializer_context()).data)


class RemediationPolicySerializer(ModelOutputSerializer[RemediationPolicy]):
    id = serializers.UUIDField(source="cluster_id", help_text="The cluster's.")
    name = serializers.CharField(help_text="The cluster's.")
    ignored_xids = serializers.ListField(child=serializers.IntegerField())
    limits = serializers.DictField(child=serializers.IntegerField())

    class Meta:
        model = RemediationPolicy
        fields = ["id", "name", *CHANGEABLE]


class RemediationPolicyChange(StrictSerializer):
    """Omitted fields stay as they are; a given map or list replaces the old one."""

    watches_faults = Flag(required=False, help_text="A fault that GPUs report sets their node aside.")
    check_node = serializers.ChoiceField(choices=Mode.choices, required=False, help_text="Check a node that looks well again.")
    restart_driver = serializers.ChoiceField(choices=Mode.choices, required=False)
    reset_gpus = serializers.ChoiceField(choices=Mode.choices, required=False)
    reboot_node = serializers.ChoiceField(choices=Mode.choices, required=False)
    tries_max = WholeNumber(min_value=1, max_value=TRIES_MAX, required=False, help_text="After so many failed repairs a person is asked.")
    returns_max = WholeNumber(min_value=1, max_value=TRIES_MAX, required=False, help_text="Returns within a week before a person is asked.")
    ignored_xids = serializers.ListField(child=WholeNumber(min_value=1, max_value=XID_MAX), required=False, max_length=LISTED_MAX)
    limits = serializers.DictField(
        child=WholeNumber(min_value=0, max_value=LIMIT_MAX),
        required=False,
        help_text=f"Increase that is a fault, by count ({', '.join(LIMIT_NAMES)}); 0: never. Others keep their defaults.",
    )


class RemediationPolicyViewSet(ApiViewSet[Any]):
    """A policy names the actions that EGS may take on nodes of a cluster that are set aside."""

    queryset = Cluster.objects.none()  # its row is locked for a change
    serializer_class = RemediationPolicySerializer
    change_body = RemediationPolicyChange
    ordering = ("name", "id")
    lookup_url_kwarg = "ref"
    admin_actions = ("list", "retrieve", "partial_update")

    @extend_schema(responses=RemediationPolicySerializer(many=True))
    def list(self, request: Request) -> Response:
        page = self.paginate_queryset(clusters_with_policies(actor_of(request)))
        return self.get_paginated_response(RemediationPolicySerializer(policies_of(page or []), many=True).data)

    def retrieve(self, request: Request, ref: str) -> Response:
        return Response(RemediationPolicySerializer(policy_for(actor_of(request), ref)).data)

    @extend_schema(request=RemediationPolicyChange)
    def partial_update(self, request: Request, ref: str) -> Response:
        data, policy = self.body(RemediationPolicyChange), policy_for(actor_of(request), ref)
        change = RemediationTerms(**{name: data[name] for name in CHANGEABLE if name in data})  # type: ignore[typeddict-item]
        remediation_policy_change(cluster=policy.cluster, change=change, actor=actor_of(request), now=self.now)
        return Response(RemediationPolicySerializer(policy_for(actor_of(request), ref)).data)

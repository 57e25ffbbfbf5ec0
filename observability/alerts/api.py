"""Serves `alerts/`, `alert-rules/` and `alert-silences/`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast
from uuid import UUID

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import User
from accounts.policy import Verb, is_platform_admin
from core.errors import NotAllowed
from core.rest.fields import Flag, Reference, StrictSerializer, Text, WholeNumber
from core.rest.filters import ReferenceFilter, Words, YesNo
from core.rest.output import ModelOutputSerializer
from core.rest.sealed import SealedId
from core.rest.views import ApiViewSet
from inventory.selectors import cluster_for, node_for
from journal.models import Severity
from observability.alerts.models import (
    HOLD_MOST_S,
    LEVEL_MOST,
    RUNBOOK_MAX_CHARS,
    WINDOW_LEAST_S,
    WINDOW_MOST_S,
    Alert,
    AlertRule,
    AlertSilence,
    AlertState,
    AlertSubject,
    Direction,
    RuleKind,
    SubjectState,
    Tells,
)
from observability.alerts.selectors import (
    alert_for,
    alerts_visible_to,
    rule_for,
    rules_visible_to,
    silence_for,
    silences_visible_to,
    subjects_of,
)
from observability.alerts.services import (
    RuleTerms,
    alert_acknowledge,
    rule_change,
    rule_create,
    rule_delete,
    silence_create,
    silence_end,
    silence_words,
)
from observability.alerts.signals import SIGNALS
from observability.alerts.telling import condition_words
from slices.models import Slice
from slices.selectors import slice_for

NAME_MAX_CHARS, NOTE_MAX_CHARS = 80, 200
SHAPE_MAX_CHARS = 63


class AlertSerializer(ModelOutputSerializer[Alert]):
    name = serializers.CharField(source="rule.name", help_text="The rule's.")
    signal = serializers.CharField(source="rule.signal")
    unit = serializers.SerializerMethodField(help_text="The unit of `worst`.")
    condition = serializers.SerializerMethodField(help_text="The rule's, as a sentence.")
    runbook = serializers.CharField(source="rule.runbook", help_text="What to do.")
    slice = serializers.CharField(source="slice.name", default=None, allow_null=True, help_text="Whose it is; null: the platform's.")
    gpr = serializers.CharField(source="gpr.name", default=None, allow_null=True, help_text="Whose box it is about.")
    owner = serializers.CharField(source="owner.name", default=None, allow_null=True, help_text="The person who takes care of it.")

    class Meta:
        model = Alert
        fields = ["id", "name", "rule_id", "signal", "unit", "condition", "runbook", "state", "severity", "places", "firing_count"]
        fields += ["most_count", "worst", "slice", "slice_id", "gpr", "gpr_id", "cluster", "cluster_id", "began_at", "fired_at"]
        fields += ["acknowledged_at", "owner", "note", "resolved_at", "resolved_why", "told_at"]

    def get_unit(self, alert: Alert) -> str:
        return SIGNALS[alert.rule.signal].unit

    def get_condition(self, alert: Alert) -> str:
        return condition_words(alert.rule)


class AlertSubjectSerializer(ModelOutputSerializer[AlertSubject]):
    id = SealedId()
    subject_id = serializers.UUIDField(help_text="Id of the GPU, node, cluster, GPR, quota or budget.")
    is_severe = serializers.BooleanField()

    class Meta:
        model = AlertSubject
        fields = ["id", "name", "subject_id", "state", "is_severe", "first", "worst", "since_at", "fired_at", "clear_since_at", "over_at"]


class AlertFilter(filters.FilterSet):
    state = Words(choices=AlertState.choices)
    severity = Words(choices=Severity.choices)
    rule = ReferenceFilter("rule")
    slice = ReferenceFilter("slice")
    gpr = ReferenceFilter("gpr")
    cluster = ReferenceFilter("cluster")
    platform = YesNo(pick=lambda is_true: Q(slice__isnull=is_true), label="For administrators; false: for the people of a workspace.")


class Acknowledgement(StrictSerializer):
    note = Text(max_length=NOTE_MAX_CHARS, required=False, allow_blank=True, help_text="What you do about it.")


class AlertViewSet(mixins.ListModelMixin, ApiViewSet[Alert]):
    """List alerts, the newest first. Administrators and auditors see all; members see those of their own boxes."""

    queryset = Alert.objects.none()
    serializer_class = AlertSerializer
    filterset_class = AlertFilter
    ordering = ("-began_at", "id")
    keyless_actions = ("acknowledge",)

    def get_queryset(self) -> QuerySet[Alert]:
        return alerts_visible_to(actor_of(self.request))

    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(AlertSerializer(alert_for(actor_of(request), pk)).data)

    @extend_schema(request=Acknowledgement, responses={200: AlertSerializer})
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, pk: str) -> Response:
        """Take care of it. It is told again only if it gets worse."""
        note, actor = self.body(Acknowledgement).get("note", ""), actor_of(request)
        done = alert_acknowledge(alert=alert_for(actor, pk, write=True), actor=actor, now=self.now, note=note)
        return Response(AlertSerializer(done).data)


class AlertSubjectFilter(filters.FilterSet):
    state = Words(choices=SubjectState.choices)


class AlertSubjectViewSet(mixins.ListModelMixin, ApiViewSet[AlertSubject]):
    """GPUs, nodes or whatever else the alert is about, with the course of each."""

    queryset = AlertSubject.objects.none()
    serializer_class = AlertSubjectSerializer
    filterset_class = AlertSubjectFilter
    ordering = ("name", "id")

    def get_queryset(self) -> QuerySet[AlertSubject]:
        if getattr(self, "swagger_fake_view", False):
            return AlertSubject.objects.none()
        return subjects_of(alert_for(actor_of(self.request), self.kwargs["alert_pk"]))


class AlertRuleSerializer(ModelOutputSerializer[AlertRule]):
    code = serializers.CharField(help_text="Names a rule that EGS brings; empty: somebody made it.")
    condition = serializers.SerializerMethodField(help_text="The condition as a sentence.")
    slice = serializers.CharField(source="slice.name", default=None, allow_null=True, help_text="Whose rule it is; null: the platform's.")
    cluster = serializers.CharField(source="cluster.name", default=None, allow_null=True, help_text="Null: all.")
    owner = serializers.CharField(source="owner.name", default=None, allow_null=True, help_text="Null: EGS.")
    unit = serializers.SerializerMethodField(help_text="The unit of the levels.")

    class Meta:
        model = AlertRule
        fields = ["id", "name", "code", "condition", "slice", "slice_id", "signal", "unit", "kind", "direction", "level", "clear_level"]
        fields += [
            "severe_level",
            "window_s",
            "hold_s",
            "clear_s",
            "severity",
            "cluster",
            "cluster_id",
            "shape",
            "tells",
            "is_on",
            "runbook",
            "owner",
            "created_at",
        ]

    def get_condition(self, rule: AlertRule) -> str:
        return condition_words(rule)

    def get_unit(self, rule: AlertRule) -> str:
        return SIGNALS[rule.signal].unit


class Level(serializers.FloatField):
    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise serializers.ValidationError("Must be a number.")
        return float(super().to_internal_value(data))


def _level(**kwargs: Any) -> Level:
    return Level(min_value=-LEVEL_MOST, max_value=LEVEL_MOST, **kwargs)


class AlertRuleTerms(StrictSerializer):
    """Omitted fields stay as they are."""

    name = Text(max_length=NAME_MAX_CHARS, required=False)
    kind = serializers.ChoiceField(choices=RuleKind.choices, required=False)
    direction = serializers.ChoiceField(choices=Direction.choices, required=False)
    level = _level(required=False, help_text="In the signal's unit; of an absence in seconds.")
    clear_level = _level(required=False, help_text="By default the level.")
    severe_level = _level(required=False, allow_null=True, help_text="From here on it is an error.")
    window_s = WholeNumber(
        min_value=WINDOW_LEAST_S, max_value=WINDOW_MOST_S, required=False, help_text="Only rates, trends and forecasts have a window."
    )
    hold_s = WholeNumber(min_value=0, max_value=HOLD_MOST_S, required=False, help_text="How long it must last before it fires.")
    clear_s = WholeNumber(min_value=0, max_value=HOLD_MOST_S, required=False, help_text="How long it must be over before it is resolved.")
    severity = serializers.ChoiceField(choices=Severity.choices, required=False)
    cluster = Reference(required=False, allow_null=True, help_text="Null: all.")
    shape = Text(max_length=SHAPE_MAX_CHARS, required=False, allow_blank=True, help_text="Empty: all.")
    tells = serializers.ChoiceField(choices=Tells.choices, required=False)
    is_on = Flag(required=False)
    runbook = Text(max_length=RUNBOOK_MAX_CHARS, required=False, allow_blank=True, help_text="What to do.")


class AlertRuleCreate(AlertRuleTerms):
    name = Text(max_length=NAME_MAX_CHARS)
    slice = Reference(required=False, allow_null=True, help_text="Whose boxes it watches; without it a rule of the platform.")
    signal = serializers.ChoiceField(choices=list(SIGNALS))
    kind = serializers.ChoiceField(choices=RuleKind.choices)
    level = _level(help_text="In the signal's unit; of an absence in seconds.")
    severity = serializers.ChoiceField(choices=Severity.choices)


class AlertRuleFilter(filters.FilterSet):
    slice = ReferenceFilter("slice")
    signal = Words(choices=[(name, name) for name in SIGNALS])
    kind = Words(choices=RuleKind.choices)
    is_on = YesNo(pick=lambda is_true: Q(is_on=is_true))


class AlertRuleViewSet(mixins.ListModelMixin, ApiViewSet[AlertRule]):
    """Rules belong to the platform or to workspaces. Members see those that may tell them something."""

    queryset = AlertRule.objects.none()
    serializer_class = AlertRuleSerializer
    change_body = AlertRuleTerms
    filterset_class = AlertRuleFilter
    ordering = ("name", "id")

    def get_queryset(self) -> QuerySet[AlertRule]:
        return rules_visible_to(actor_of(self.request))

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=AlertRuleCreate, responses={201: AlertRuleSerializer})
    def create(self, request: Request) -> Response:
        """Make a rule for the boxes of a workspace; administrators also one of the platform."""
        data, actor = self.body(AlertRuleCreate), actor_of(request)
        slice_ = of_whom(actor, data.pop("slice", None))
        made = rule_create(slice_=slice_, terms=_terms(actor, data), actor=actor, now=self.now)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    @extend_schema(request=AlertRuleTerms)
    def partial_update(self, request: Request, pk: str) -> Response:
        data, actor = self.body(AlertRuleTerms), actor_of(request)
        rule_change(rule=rule_for(actor, pk, write=True), terms=_terms(actor, data), actor=actor, now=self.now)
        return self._answer(pk)

    def destroy(self, request: Request, pk: str) -> Response:
        """Its alerts go with it. A rule that EGS brings can only be switched off."""
        actor = actor_of(request)
        rule_delete(rule=rule_for(actor, pk, write=True), actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        return Response(AlertRuleSerializer(rule_for(actor_of(self.request), pk)).data, **kwargs)


def of_whom(actor: User, reference: str | None) -> Slice | None:
    """Returns the workspace, or None for the platform. Raises NotFound and NotAllowed."""
    if reference:
        return slice_for(actor, reference, verb=Verb.REQUEST)
    if not is_platform_admin(actor):
        raise NotAllowed("Only administrators may do this for the whole platform. Name your workspace.")
    return None


def _terms(actor: User, data: dict[str, Any]) -> RuleTerms:
    cluster = data.get("cluster")
    given = {**data, "cluster": cluster_for(actor, cluster) if cluster else None} if "cluster" in data else data
    return cast(RuleTerms, given)


class AlertSilenceSerializer(ModelOutputSerializer[AlertSilence]):
    name = serializers.SerializerMethodField(help_text="What is silent.")
    slice = serializers.CharField(source="slice.name", default=None, allow_null=True, help_text="Whose alerts; null: administrators'.")
    owner = serializers.CharField(source="owner.name", help_text="The person who made it.")

    class Meta:
        model = AlertSilence
        fields = ["id", "name", "slice", "slice_id", "rule", "rule_id", "cluster", "cluster_id", "node", "node_id", "alert_id", "owner"]
        fields += ["reason", "created_at", "starts_at", "ends_at"]

    def get_name(self, silence: AlertSilence) -> str:
        return silence_words(silence)


class AlertSilenceCreate(StrictSerializer):
    slice = Reference(required=False, allow_null=True, help_text="Whose alerts; without it those of administrators.")
    rule = Reference(required=False, help_text="Id of the rule.")
    cluster = Reference(required=False)
    node = Reference(required=False)
    alert = Reference(required=False, help_text="Id of one alert.")
    starts_at = serializers.DateTimeField(required=False, help_text="By default now.")
    ends_at = serializers.DateTimeField()
    reason = Text(max_length=NOTE_MAX_CHARS)


class AlertSilenceFilter(filters.FilterSet):
    slice = ReferenceFilter("slice")


class AlertSilenceViewSet(mixins.ListModelMixin, ApiViewSet[AlertSilence]):
    """While a silence lasts, nobody is told of the alerts that match; they stand in the list all the same."""

    queryset = AlertSilence.objects.none()
    serializer_class = AlertSilenceSerializer
    filterset_class = AlertSilenceFilter

    def get_queryset(self) -> QuerySet[AlertSilence]:
        return silences_visible_to(actor_of(self.request))

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(pk)

    @extend_schema(request=AlertSilenceCreate, responses={201: AlertSilenceSerializer})
    def create(self, request: Request) -> Response:
        data, actor = self.body(AlertSilenceCreate), actor_of(request)
        slice_ = of_whom(actor, data.pop("slice", None))
        finders: dict[str, Callable[[User, str], Any]] = {"rule": rule_for, "cluster": cluster_for, "alert": alert_for}
        finders["node"] = partial(node_for, now=self.now)
        what: dict[str, Any] = {name: find(actor, data.pop(name)) for name, find in finders.items() if name in data}
        made = silence_create(slice_=slice_, actor=actor, now=self.now, **what, **data)
        return self._answer(made.pk, status=status.HTTP_201_CREATED)

    def destroy(self, request: Request, pk: str) -> Response:
        """End it now."""
        actor = actor_of(request)
        silence_end(silence=silence_for(actor, pk, write=True), actor=actor, now=self.now)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, pk: str | UUID, **kwargs: Any) -> Response:
        return Response(AlertSilenceSerializer(silence_for(actor_of(self.request), pk)).data, **kwargs)

"""Answers requests of both portals: pages, fragments and dialogs of alerts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import render

from accounts.policy import Verb, may
from core.errors import InvalidInput, NotFound
from core.pages import words
from gpr.requests.spec import shapes_of
from inventory.models import Node
from inventory.selectors import cluster_for, clusters_visible_to, node_known_to, shapes_known
from observability.alerts.models import Alert, AlertRule, Tells
from observability.alerts.selectors import alert_for, firing_count, only_node_of, rule_for, rules_visible_to, silence_for
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
from portal_shared.access import PageRequest
from portal_shared.forms.alert_forms import AcknowledgeForm, NewSilenceForm, RuleForm, SilenceForm
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.parts.alerts.listing import AlertsPage
from portal_shared.parts.alerts.one import AlertPage
from portal_shared.parts.alerts.rules import RulesPage
from portal_shared.parts.portals import Portal
from portal_shared.shell import NavCount
from slices.models import Slice
from slices.selectors import slice_for, slices_visible_to_members

TOPICS = ("alerts",)
RULES_SHOWN = 200
FIELDS = {"signal": "watches", "kind": "watches", "ends_at": "length"}


def render_alerts(request: PageRequest, portal: Portal) -> HttpResponse:
    may_silence = portal.is_admin or bool(_own_workspaces(request))
    return _render(request, AlertsPage.build(request, portal, may_silence=may_silence), "list", {"list": "list"})


def render_alert(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    return _render(request, AlertPage.build(request, portal, pk), "alert", {"body": "alert", "head": "alert_head"})


def render_rules(request: PageRequest, portal: Portal) -> HttpResponse:
    may_create = portal.is_admin or bool(_own_workspaces(request))
    return _render(request, RulesPage.build(request, portal, may_create=may_create), "rules", {"list": "rules"})


def render_count(request: PageRequest) -> HttpResponse:
    """Returns the count in the navigation of both portals."""
    return render(request, "components/shell/nav_count.html", {"count": NavCount.of_alerts(firing_count(request.user))})


def _render(request: PageRequest, page: Any, what: str, parts: Mapping[str, str]) -> HttpResponse:
    name = parts.get(request.GET.get("part", ""), f"{what}_page")
    return render(request, f"components/alerts/{name}.html", {"page": page, "shell": page.shell, "now": request.now})


def acknowledge(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    alert = alert_for(request.user, pk, write=True)

    def do(note: str) -> str:
        alert_acknowledge(alert=alert, actor=request.user, now=request.now, note=note)
        return f"You take care of {alert.rule.name}"

    text = "The others see that you take care of it. It is told again only if it gets worse."
    question = _question(
        request, portal, AcknowledgeForm(sent(request)), f"Acknowledge {alert.rule.name}?", text, "Acknowledge", ("alert-acknowledge", pk)
    )
    return decide(request, question, do, topics=TOPICS)


def silence(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    alert = alert_for(request.user, pk, write=True)
    node = only_node_of(alert)
    form = SilenceForm(sent(request), choices=_silence_choices(alert, node))

    def do(what: str, length: int, reason: str) -> str:
        of: dict[str, Any] = {what: {"alert": alert, "rule": alert.rule, "node": node, "cluster": alert.cluster}[what]}
        ends_at = request.now + timedelta(seconds=length)
        made = silence_create(slice_=alert.slice, ends_at=ends_at, reason=reason, actor=request.user, now=request.now, **of)
        return f"Silent for {words.duration(length)}: {silence_words(made)}"

    text = "Nobody is told while the silence lasts. Alerts stay in the list, and EGS tells of those that still fire at its end."
    question = _question(request, portal, form, f"Silence {alert.rule.name}?", text, "Silence", ("alert-silence", pk))
    return decide(request, question, do, topics=TOPICS, fields=FIELDS)


def create_silence(request: PageRequest, portal: Portal) -> HttpResponse:
    of = _workspace_choices(request, portal)
    whose_rules = Q(slice=None) if portal.is_admin else Q(tells__in=(Tells.BOX, Tells.BOTH), slice=None) | Q(slice__in=[pk for pk, _ in of])
    rules = rules_visible_to(request.user).filter(whose_rules).order_by("name")
    form = NewSilenceForm(
        sent(request), of=of, rules=[(str(rule.pk), rule.name) for rule in rules[:RULES_SHOWN]], clusters=_cluster_names(request)
    )

    def do(rule: str, length: int, reason: str, **at: str) -> str:
        made = silence_create(
            slice_=slice_for(request.user, at["slice"], verb=Verb.REQUEST) if "slice" in at else None,
            rule=rule_for(request.user, rule) if rule else None,
            cluster=cluster_for(request.user, at["cluster"]) if at.get("cluster") else None,
            node=_node(request, at["node"]) if at.get("node") else None,
            ends_at=request.now + timedelta(seconds=length),
            reason=reason,
            actor=request.user,
            now=request.now,
        )
        return f"Silent for {words.duration(length)}: {silence_words(made)}"

    whose = "Alerts of the platform" if portal.is_admin else "Alerts of a workspace"
    text = f"{whose} stay in the list, and nobody is told of them. EGS tells of those that still fire at the end of the silence."
    question = _question(request, portal, form, "Silence alerts", text, "Silence", ("alert-silence-create",))
    return decide(request, question, do, topics=TOPICS, fields=FIELDS)


def _node(request: PageRequest, name: str) -> Node:
    try:
        return node_known_to(request.user, name)
    except NotFound:
        raise InvalidInput({"node": ["There is no such node."]}) from None


def _silence_choices(alert: Alert, node: Node | None) -> list[tuple[str, str]]:
    choices = [("alert", f"This alert: {alert.places}"), ("rule", f"All alerts of the rule {alert.rule.name}")]
    choices += [("node", f"All alerts on node {node.name}")] if node is not None else []
    return [*choices, ("cluster", f"All alerts in cluster {alert.cluster.name}")] if alert.cluster is not None else choices


def end_silence(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    row = silence_for(request.user, pk, write=True)

    def do() -> str:
        silence_end(silence=row, actor=request.user, now=request.now)
        return "The silence is over"

    text = f"It silences {silence_words(row)}. EGS tells of these alerts again from now on."
    question = _question(request, portal, forms.Form(sent(request)), "End the silence?", text, "End silence", ("alert-silence-end", pk))
    return decide(request, question, do, topics=TOPICS)


def create_rule(request: PageRequest, portal: Portal) -> HttpResponse:
    of = _workspace_choices(request, portal)
    shapes = shapes_known() if portal.is_admin else {shape for one in _own_workspaces(request) for shape in shapes_of(one)}
    form = RuleForm(sent(request), of=of, clusters=_cluster_names(request), shapes=sorted(shapes))

    def do(**given: Any) -> str:
        reference = given.pop("slice", "")
        slice_ = slice_for(request.user, reference, verb=Verb.REQUEST) if reference else None
        made = rule_create(slice_=slice_, terms=_terms(request, given), actor=request.user, now=request.now)
        return f"The rule {made.name} is on"

    whose = (
        "It watches the whole platform." if portal.is_admin else "It watches the GPUs of your workspace's boxes, and tells their owners."
    )
    question = _question(request, portal, form, "Add a rule of alerts", whose, "Add rule", ("alert-rule-create",), back="alert-rules")
    return decide(request, question, do, topics=TOPICS, fields=FIELDS)


def change_rule(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    rule = rule_for(request.user, pk, write=True)
    shapes = {*(shapes_of(rule.slice) if rule.slice else shapes_known()), *([rule.shape] if rule.shape else [])}
    form = RuleForm(sent(request), of=[], clusters=_cluster_names(request), shapes=sorted(shapes), rule=rule, initial=_as_typed(rule))

    def do(**given: Any) -> str:
        changed = rule_change(rule=rule, terms=_terms(request, given), actor=request.user, now=request.now)
        return f"The rule {changed.name} is changed" if changed.is_on else f"The rule {changed.name} is off"

    text = "Firing alerts go on, and end by the new terms."
    question = _question(request, portal, form, f"Change the rule {rule.name}", text, "Change rule", ("alert-rule", pk), back="alert-rules")
    return decide(request, question, do, topics=TOPICS, fields=FIELDS)


def delete_rule(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    rule = rule_for(request.user, pk, write=True)

    def do() -> str:
        rule_delete(rule=rule, actor=request.user, now=request.now)
        return f"The rule {rule.name} is deleted"

    title, text, form = f"Delete the rule {rule.name}?", "Its alerts go with it, also those of the past.", forms.Form(sent(request))
    question = _question(request, portal, form, title, text, "Delete rule", ("alert-rule-delete", pk), back="alert-rules", is_plain=False)
    return decide(request, question, do, topics=TOPICS)


def _as_typed(rule: AlertRule) -> dict[str, Any]:
    plain = ("name", "direction", "level", "clear_level", "severe_level", "severity", "shape", "tells", "runbook")
    spans = ("window_s", "hold_s", "clear_s")
    typed: dict[str, Any] = {name: getattr(rule, name) for name in plain} | {"watches": f"{rule.signal}:{rule.kind}"}
    typed |= {name: words.duration_exact(getattr(rule, name)) for name in spans if getattr(rule, name)}
    return {**typed, "cluster": rule.cluster.name if rule.cluster else "", "is_on": "on" if rule.is_on else ""}


def _terms(request: PageRequest, given: dict[str, Any]) -> RuleTerms:
    cluster = given.pop("cluster")
    return cast(RuleTerms, {**given, "cluster": cluster_for(request.user, cluster) if cluster else None})


def _cluster_names(request: PageRequest) -> QuerySet[Any, str]:
    return clusters_visible_to(request.user).order_by("name").values_list("name", flat=True)


def _own_workspaces(request: PageRequest) -> list[Slice]:
    """Returns workspaces in which the reader may make rules."""
    return [one for one in slices_visible_to_members(request.user).order_by("name") if may(request.user, Verb.REQUEST, one)]


def _workspace_choices(request: PageRequest, portal: Portal) -> list[tuple[str, str]]:
    """Without any it is about the platform."""
    return [] if portal.is_admin else [(str(one.pk), one.name) for one in _own_workspaces(request)]


def _question(
    request: PageRequest, portal: Portal, form: forms.Form, title: str, text: str, verb: str, at: tuple[Any, ...], **more: Any
) -> Question:
    back_url, is_plain = portal.url(more.get("back", "alerts")), more.get("is_plain", True)
    shell = portal.shell_of(request, "alerts")
    return Question(title, text, verb, portal.url(*at), back_url=back_url, form=form, shell=shell, is_plain=is_plain, keep="Cancel")

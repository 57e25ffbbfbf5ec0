"""Shows nodes that are set aside: the list with the policies of clusters, and one case with its evidence and repairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Q
from django.urls import reverse

from core.pages import words
from core.pages.parts import EventRow, ListFoot, Pair, Tab
from inventory.models import Repair
from journal.models import Event
from observability.models import RemediationCase, RemediationPolicy
from observability.remediation.faults import ACTION_NAMES, Action
from observability.remediation.models import CLOSED, CaseState, Mode
from observability.remediation.policies import clusters_with_policies, policies_of
from observability.remediation.selectors import case_for, cases_visible_to, preview_of
from portal_admin.pages.fleet.node import step_row
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of, state_of, url_with
from portal_shared.shell import Shell

ORDERING: Final = ("-opened_at", "id")
EVENTS_SHOWN: Final = 30
WANTS_PERSON: Final = (CaseState.ASKING, CaseState.ESCALATED)
VIEWS: Final = {
    "": ("Set aside", Q(closed_at=None)),
    "waits": ("Waits for you", Q(state__in=WANTS_PERSON)),
    "closed": ("History", Q(state__in=CLOSED)),
}
# Glyph and CSS class.
GLYPHS: Final = {
    CaseState.OPEN: ("step-waiting", "step-waiting"),
    CaseState.ASKING: ("step-warned", "step-warned"),
    CaseState.ACTING: ("provisioning", "step-running"),
    CaseState.PROVING: ("provisioning", "step-running"),
    CaseState.ESCALATED: ("failed", "step-failed"),
    CaseState.KEPT: ("step-skipped", "step-skipped"),
    CaseState.RETURNED: ("step-passed", "step-passed"),
    CaseState.GONE: ("canceled", "step-skipped"),
}
STATE_WORDS: Final = {
    CaseState.OPEN: "Waits",
    CaseState.ASKING: "Needs approval",
    CaseState.ACTING: "Being repaired",
    CaseState.PROVING: "Being checked",
    CaseState.ESCALATED: "Needs a person",
    CaseState.KEPT: "Kept aside",
    CaseState.RETURNED: "In use again",
    CaseState.GONE: "Left its cluster",
}
MODE_WORDS: Final = {Mode.AUTO: "by itself", Mode.ASK: "after approval", Mode.NEVER: "never"}


@dataclass(frozen=True, slots=True)
class CaseRow:
    id: UUID
    node: str
    cluster: str
    why: str
    state: str
    state_why: str
    glyph: str
    css: str
    opened_at: datetime
    closed_at: datetime | None
    next: str
    url: str

    @classmethod
    def of(cls, case: RemediationCase) -> CaseRow:
        glyph, css = GLYPHS[CaseState(case.state)]
        return cls(
            id=case.pk,
            node=case.node.name,
            cluster=case.node.cluster.name,
            why=case.why,
            state=STATE_WORDS[CaseState(case.state)],
            state_why=case.state_why,
            glyph=glyph,
            css=css,
            opened_at=case.opened_at,
            closed_at=case.closed_at,
            next="" if case.closed_at else ACTION_NAMES[case.action],
            url=reverse("admin-case", args=[case.pk]),
        )


@dataclass(frozen=True, slots=True)
class RemediationPolicyRow:
    id: UUID
    cluster: str
    watches: bool
    modes: tuple[str, ...]
    bounds: str
    change_url: str

    @classmethod
    def of(cls, policy: RemediationPolicy) -> RemediationPolicyRow:
        acts = (Action.CHECK, Action.RESTART_DRIVER, Action.RESET_GPUS, Action.REBOOT_NODE)
        limits = [f"{name} {words.number(value)}" for name, value in sorted(policy.limits.items())]
        ignored = [f"Xid {xid} ignored" for xid in policy.ignored_xids]
        tries, returns = words.plural(policy.tries_max, "repair"), words.plural(policy.returns_max, "return")
        return cls(
            id=policy.cluster_id,
            cluster=policy.cluster.name,
            watches=policy.watches_faults,
            modes=tuple(f"{ACTION_NAMES[act].removesuffix(' and check')}: {MODE_WORDS[policy.mode_of(act)]}" for act in acts),
            bounds=", ".join([f"a person after {tries} that failed, or {returns} within a week", *ignored, *limits]),
            change_url=reverse("admin-remediation-policy", args=[policy.cluster_id]),
        )


@dataclass(frozen=True, slots=True)
class RemediationPage:
    shell: Shell
    tabs: tuple[Tab, ...]
    is_history: bool
    is_open: bool
    rows: tuple[CaseRow, ...]
    foot: ListFoot
    policies: tuple[RemediationPolicyRow, ...]
    read_only: str  # why there are no buttons
    url: str

    @classmethod
    def build(cls, request: PageRequest) -> RemediationPage:
        view = state_of(request, VIEWS)
        cases, url = cases_visible_to(request.user), reverse("admin-remediation")
        page = page_of(request, cases.filter(VIEWS[view][1]), ordering=ORDERING)
        keep = {"state": view}
        return cls(
            shell=admin_shell(request, page="remediation"),
            tabs=tuple(_tabs(view, cases, url)),
            is_history=view == "closed",
            is_open=view != "closed",
            rows=tuple(CaseRow.of(case) for case in page.rows),
            foot=foot_of(page, url, keep),
            policies=tuple(
                RemediationPolicyRow.of(policy) for policy in policies_of(list(clusters_with_policies(request.user).order_by("name")))
            ),
            read_only=why_not_write(request),
            url=url_with(url, keep, cursor=request.GET.get("cursor", ""), part="rows"),
        )


def _tabs(view: str, cases: Any, url: str) -> Iterator[Tab]:
    counted = {name: Count("pk", filter=filter_, distinct=True) for name, (_, filter_) in VIEWS.items() if name != "closed"}
    counts = cases.order_by().aggregate(**{name or "open": count for name, count in counted.items()})
    for name, (label, _) in VIEWS.items():
        yield Tab(label, url_with(url, {"state": name}), is_current=name == view, count=counts.get(name or "open"))


@dataclass(frozen=True, slots=True)
class CaseAct:
    label: str
    url: str
    css: str = ""


@dataclass(frozen=True, slots=True)
class RepairRow:
    what: str
    begun_at: datetime
    by: str
    outcome: str
    css: str
    steps: tuple[Any, ...]

    @classmethod
    def of(cls, repair: Repair) -> RepairRow:
        is_over = repair.released_at is not None
        outcome, css = (
            ("All checks passed", "good")
            if repair.passed_at
            else (f"Failed: {repair.failure}" if repair.failure else "Given up", "late")
            if is_over
            else ("At work", "busy")
        )
        return cls(
            what=ACTION_NAMES[repair.action or Action.CHECK],
            begun_at=repair.begun_at,
            by=repair.begun_by.name if repair.begun_by else "EGS",
            outcome=outcome,
            css=css,
            steps=tuple(step_row(step) for step in repair.steps.all()),
        )


@dataclass(frozen=True, slots=True)
class CasePage:
    shell: Shell
    case: CaseRow
    facts: tuple[Pair, ...]
    evidence: tuple[dict[str, Any], ...]
    repairs: tuple[RepairRow, ...]
    events: tuple[EventRow, ...]
    acts: tuple[CaseAct, ...]
    log_url: str
    node_url: str
    read_only: str
    head_url: str
    url: str

    @classmethod
    def build(cls, request: PageRequest, pk: UUID) -> CasePage:
        case = case_for(request.user, pk)
        url = reverse("admin-case", args=[pk])
        events = Event.objects.filter(node_id=case.node_id, kind__startswith="remediation.", data__case=str(pk))[:EVENTS_SHOWN]
        return cls(
            shell=admin_shell(request, page="remediation"),
            case=CaseRow.of(case),
            facts=tuple(_facts(case, request)),
            evidence=tuple({**each, "at": datetime.fromisoformat(each["at"])} for each in case.evidence),
            repairs=tuple(RepairRow.of(repair) for repair in reversed(case.repairs.all())),
            events=tuple(EventRow(event.at, event.message, event.severity) for event in events),
            acts=tuple(_acts(case)) if request.may_write else (),
            log_url=reverse("admin-case-log", args=[pk]),
            node_url=reverse("admin-node", args=[case.node_id]),
            read_only=why_not_write(request) if case.closed_at is None else "",
            head_url=url_with(url, {"part": "head"}),
            url=url_with(url, {"part": "rows"}),
        )


def _facts(case: RemediationCase, request: PageRequest) -> Iterator[Pair]:
    yield Pair("Why", case.why)
    yield Pair("Cause", case.get_cause_display(), case.code)
    yield Pair("State", STATE_WORDS[CaseState(case.state)], case.state_why)
    yield Pair("Since", words.moment(case.opened_at, now=request.now, zone=request.zone))
    if case.closed_at is None:
        preview = preview_of(case, case.action)
        yield Pair("Next", ACTION_NAMES[case.action], preview.why_not_now)
        yield Pair("Held by", ", ".join(f"{row.gpr.name} of {row.slice.name}" for row in preview.boxes))
    else:
        by = case.closed_by.name if case.closed_by else "EGS"
        yield Pair("Closed", words.moment(case.closed_at, now=request.now, zone=request.zone), f"by {by}")
    yield Pair("Cluster", case.node.cluster.name)
    yield Pair("Shape", case.node.shape, words.plural(case.node.gpu_count, "GPU"))


def _acts(case: RemediationCase) -> Iterator[CaseAct]:
    if case.closed_at is not None:
        return
    if case.state not in (CaseState.ACTING, CaseState.PROVING):
        yield CaseAct("Repair and check", reverse("admin-case-approve", args=[case.pk]), "btn-primary")
    if case.state in (CaseState.KEPT, CaseState.ESCALATED):
        yield CaseAct("Let EGS go on", reverse("admin-case-resume", args=[case.pk]))
    if case.state != CaseState.KEPT:
        yield CaseAct("Keep aside", reverse("admin-case-keep", args=[case.pk]))
    yield CaseAct("Use without checks", reverse("admin-case-give-back", args=[case.pk]), "btn-stop")

"""Shows a policy with where each value comes from, its versions, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse

from accounts.models import User
from core.pages import words
from gpr.models import Gpr
from gpr.policies.breaches import Found, breaches_now, follows, why_it_stands
from gpr.requests.selectors import gprs_visible_to
from portal_shared.forms.fields import IdleField
from portal_shared.parts.gpr_box import shown_state
from portal_shared.shell import WorkspaceMark
from slices.models import Policy, PolicyVersion
from slices.policies.selectors import BUILT_IN, TermLine, policy_views
from slices.policies.services import changed_names
from slices.policies.terms import TERMS, Term, Unit

VERSIONS_SHOWN = BREACHES_SHOWN = 20
EFFECTS_SHOWN = 6
SOURCES = {BUILT_IN: "built in", "platform": "the platform", "project": "its project", "slice": "the workspace"}
TermUrl = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """`change_url` and `inherit_url` are empty if the reader may not change it."""

    label: str
    help: str
    value: str
    source: str
    is_own: bool
    change_url: str
    inherit_url: str

    @classmethod
    def of(cls, line: TermLine, change_url: str, inherit_url: str) -> PolicyLine:
        source = "set here" if line.is_own else SOURCES[line.source]
        return cls(line.term.label, line.term.help, said(line.term, line.value), source, line.is_own, change_url, inherit_url)


@dataclass(frozen=True, slots=True)
class VersionRow:
    number: int
    at: datetime
    by: str
    why: str
    changes: tuple[str, ...]

    @classmethod
    def of(cls, row: PolicyVersion) -> VersionRow:
        names = changed_names(row.before, row.terms)
        changes = tuple(f"{TERMS[name].label}: {_side(name, row.before)} → {_side(name, row.terms)}" for name in names)
        return cls(row.pk, row.made_at, row.made_by.name if row.made_by else "EGS", row.why, changes)


@dataclass(frozen=True, slots=True)
class BreachRow:
    id: UUID
    name: str
    url: str
    mark: WorkspaceMark
    state: str
    rules: tuple[str, ...]
    note: str

    @classmethod
    def of(cls, gpr: Gpr, found: Found, note: str) -> BreachRow:
        rules = tuple(breach.text for breach in found[gpr.pk])
        return cls(gpr.pk, gpr.name, reverse("gpr", args=[gpr.pk]), WorkspaceMark.of(gpr.slice), shown_state(gpr), rules, note)


@dataclass(frozen=True, slots=True)
class PolicyPanel:
    of: str
    version: int
    lines: tuple[PolicyLine, ...]
    versions: tuple[VersionRow, ...]
    breaches: tuple[BreachRow, ...]
    breach_count: int

    @classmethod
    def build(cls, policy: Policy, actor: User, *, change_url: TermUrl | None = None, inherit_url: TermUrl | None = None) -> PolicyPanel:
        (view,) = policy_views([policy])
        found = breaches_now(policy)
        gprs = gprs_visible_to(actor).filter(pk__in=found).order_by("-created_at", "pk")[:BREACHES_SHOWN]
        return cls(
            of=policy.of,
            version=policy.version,
            lines=tuple(
                PolicyLine.of(
                    line,
                    change_url(line.term.name) if change_url else "",
                    inherit_url(line.term.name) if inherit_url and line.is_own else "",
                )
                for line in view.lines
            ),
            versions=tuple(VersionRow.of(row) for row in policy.versions.select_related("made_by")[:VERSIONS_SHOWN]),
            breaches=tuple(BreachRow.of(gpr, found, why_it_stands(gpr)) for gpr in gprs),
            breach_count=len(found),
        )


@dataclass(frozen=True, slots=True)
class Breaking:
    """Describes a request that would break a changed policy, and what happens to it."""

    name: str
    url: str
    mark: WorkspaceMark
    state: str
    rules: str
    follows: str


@dataclass(frozen=True, slots=True)
class PolicyEffects:
    """Previews a changed policy."""

    own: str
    breaking: tuple[Breaking, ...] = ()
    summary: str = ""
    shown: tuple[()] = ()  # no start changes

    @classmethod
    def of(cls, found: Found, request_url: Callable[[UUID], str]) -> PolicyEffects:
        gprs = Gpr.objects.filter(pk__in=found).select_related("slice").order_by("-created_at", "pk")[:EFFECTS_SHOWN]
        breaking = tuple(
            Breaking(gpr.name, request_url(gpr.pk), WorkspaceMark.of(gpr.slice), shown_state(gpr), _rules(gpr, found), follows(gpr))
            for gpr in gprs
        )
        count, more = len(found), len(found) - len(breaking)
        own = f"{words.plural(count, 'request')} that {'keeps' if count == 1 else 'keep'} the policy now would break it:"
        none = "No running, waiting or booked request would break it."
        return cls(own if found else none, breaking, f"And {words.plural(more, 'other')}." if more else "")


def _rules(gpr: Gpr, found: Found) -> str:
    return " ".join(breach.text for breach in found[gpr.pk])


def said(term: Term, value: Any) -> str:
    match term.unit:
        case Unit.DURATION:
            return words.duration_exact(value) if value else "none"
        case Unit.TIMEOUT:
            return IdleField.typed(value)
        case Unit.FLAG:
            return "yes" if value else "no"
        case Unit.SHAPES:
            return ", ".join(value) or "all"
        case Unit.PATTERNS:
            return ", ".join(value) or "none"
    return words.number(value)


def _side(name: str, terms: dict[str, Any]) -> str:
    return said(TERMS[name], terms[name]) if name in terms else "inherited"

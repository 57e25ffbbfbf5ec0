"""Shows the rules of alerts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from core.pages.parts import ListFoot, Tab
from observability.alerts.models import AlertRule, Tells
from observability.alerts.selectors import rules_visible_to
from observability.alerts.telling import condition_words
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.alerts.listing import may_change_row
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.parts.portals import Portal
from portal_shared.shell import Shell, WorkspaceMark

ORDER: Final = ("name", "id")
OF: Final = {"": "All", "egs": "Of EGS", "own": "Made here"}


@dataclass(frozen=True, slots=True)
class RuleRow:
    id: UUID
    name: str
    severity: str
    condition: str
    scope: str
    mark: WorkspaceMark | None
    tells: str
    is_on: bool
    runbook: str
    change_url: str
    delete_url: str

    @classmethod
    def of(cls, rule: AlertRule, portal: Portal, *, may_change: bool) -> RuleRow:
        scope = ", ".join(filter(None, [rule.cluster.name if rule.cluster else "", rule.shape]))
        return cls(
            id=rule.pk,
            name=rule.name,
            severity=rule.severity,
            condition=condition_words(rule),
            scope=scope,
            mark=WorkspaceMark.of(rule.slice) if rule.slice else None,
            tells=Tells(rule.tells).label,
            is_on=rule.is_on,
            runbook=rule.runbook,
            change_url=portal.url("alert-rule", rule.pk) if may_change else "",
            delete_url=portal.url("alert-rule-delete", rule.pk) if may_change and not rule.code else "",
        )


@dataclass(frozen=True, slots=True)
class RulesPage:
    shell: Shell
    rows: tuple[RuleRow, ...]
    foot: ListFoot
    tabs: tuple[Tab, ...]
    url: str
    create_url: str
    list_url: str
    read_only: str

    @classmethod
    def build(cls, request: PageRequest, portal: Portal, *, may_create: bool) -> RulesPage:
        of = request.GET.get("of", "") if request.GET.get("of", "") in OF else ""
        rows, url = rules_visible_to(request.user), portal.url("alert-rules")
        if of:
            rows = rows.filter(code="") if of == "own" else rows.exclude(code="")
        found = page_of(request, rows, ordering=ORDER)
        return cls(
            shell=portal.shell_of(request, "alerts"),
            rows=tuple(RuleRow.of(rule, portal, may_change=may_change_row(request, rule)) for rule in found.rows),
            foot=foot_of(found, url, {"of": of}),
            tabs=tuple(Tab(word, url_with(url, {"of": name}), name == of) for name, word in OF.items()),
            url=url_with(url, {"of": of, "cursor": request.GET.get("cursor", ""), "part": "list"}),
            create_url=portal.url("alert-rule-create") if request.may_write and may_create else "",
            list_url=portal.url("alerts"),
            read_only=why_not_write(request),
        )

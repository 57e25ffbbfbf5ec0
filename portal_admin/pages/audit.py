"""Shows the audit log, found by person, workspace, kind, text, days and origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse

from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import ListFoot
from core.rest.filters import day_given
from core.rest.sealed import seal
from journal.audit_api import AuditFilter
from journal.models import Event, EventRetention
from journal.selectors import audit_trail
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell

ORDER: Final = ("-id",)
TEXTS: Final = {"actor": "Person", "slice": "Workspace", "kind": "Kind, e.g. gpr.", "text": "Text", "address": "Address"}
KEYS: Final = {"token": "Token", "request": "Request"}
DAYS: Final = {"since": "From", "until": "Before"}
FIELDS: Final = TEXTS | KEYS | DAYS


@dataclass(frozen=True, slots=True)
class AskedField:
    name: str
    label: str
    value: str
    is_day: bool


@dataclass(frozen=True, slots=True)
class AuditRow:
    id: UUID
    at: datetime
    who: str
    how: str
    message: str
    kind: str
    change: str
    values: tuple[str, ...]
    address: str
    request_id: str

    @classmethod
    def of(cls, event: Event) -> AuditRow:
        how = f"token {event.token_key}" if event.token_key else "identity provider" if event.login_id else ""
        return cls(
            id=seal(event.pk),
            at=event.at,
            who=event.actor.name if event.actor is not None else "nobody known",
            how=f"{how}, in a browser" if event.login_id and event.token_key else how,
            message=event.message,
            kind=event.kind,
            change=f"{event.old} → {event.new}" if event.old or event.new else "",
            values=_values(event.data),
            address=event.address,
            request_id=event.request_id,
        )


@dataclass(frozen=True, slots=True)
class AuditPage:
    shell: Shell
    fields: tuple[AskedField, ...]
    records: tuple[AuditRow, ...]
    foot: ListFoot
    export_url: str
    kept: str

    @classmethod
    def build(cls, request: PageRequest) -> AuditPage:
        url = reverse("admin-audit")
        given = _given(request)
        found = page_of(request, audit_filtered(request), ordering=ORDER)
        return cls(
            shell=admin_shell(request, page="audit"),
            fields=tuple(AskedField(name, label, given[name], name in DAYS) for name, label in FIELDS.items()),
            records=tuple(AuditRow.of(event) for event in found.rows),
            foot=foot_of(found, url, given),
            export_url=url_with(reverse("admin-audit-export"), given),
            kept=_kept(request),
        )


def _kept(request: PageRequest) -> str:
    days, retention = settings.EGS_AUDIT_KEPT_DAYS, EventRetention.objects.first()
    told = f"Records stay for {days} days." if days else "Records stay for good."
    if retention is None:
        return told
    return f"{told} Those from before {words.moment(retention.deleted_before_at, now=request.now, zone=request.zone)} are deleted."


def audit_filtered(request: PageRequest) -> QuerySet[Event]:
    """Raises InvalidInput."""
    given = _given(request)
    try:
        asked = {**given, **{name: _begin(given[name], request) for name in DAYS}}
    except ValueError:
        raise InvalidInput({"since": ["Must be a day, as 2027-01-31."]}) from None
    rows: QuerySet[Event] = AuditFilter(asked, queryset=audit_trail(), request=request).qs
    return rows


def _given(request: PageRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").strip().replace("\x00", "")[:63] for name in FIELDS}


def _begin(day: str, request: PageRequest) -> str:
    """Returns the time at which this day begins where the reader is; empty for no day. Raises ValueError."""
    given = day_given(day)
    return datetime.combine(given, time(), tzinfo=request.zone).isoformat() if given is not None else ""


def _values(data: Mapping[str, Any]) -> tuple[str, ...]:
    before, after = data.get("before"), data.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ()
    return tuple(f"{name}: {_said(before.get(name))} → {_said(value)}" for name, value in after.items())


def _said(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text or '""'

"""The audit log, with filters by person, kind and text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet
from django.urls import reverse

from core.pages import words
from core.pages.parts import ListFoot
from core.rest.references import is_object
from core.rest.sealed import seal
from journal.models import Event, EventRetention
from journal.selectors import audit_trail
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell

ORDER: Final = ("-id",)
FIELDS: Final = {"actor": "Person", "kind": "Kind, e.g. gpr.", "text": "Text"}


@dataclass(frozen=True, slots=True)
class ChangedField:
    name: str
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    id: UUID
    at: datetime
    who: str
    how: str
    message: str
    kind: str
    change: str
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
            address=event.address,
            request_id=event.request_id,
        )


@dataclass(frozen=True, slots=True)
class AuditPage:
    shell: Shell
    fields: tuple[ChangedField, ...]
    records: tuple[AuditRow, ...]
    foot: ListFoot
    export_url: str
    kept: str

    @classmethod
    def build(cls, request: PageRequest) -> AuditPage:
        url = reverse("admin-audit")
        given = _given(request)
        found = page_of(request, _filtered(given), ordering=ORDER)
        return cls(
            shell=admin_shell(request, page="audit"),
            fields=tuple(ChangedField(name, label, given[name]) for name, label in FIELDS.items()),
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
    return _filtered(_given(request))


def _given(request: PageRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").strip().replace("\x00", "")[:63] for name in FIELDS}


def _filtered(given: dict[str, str]) -> QuerySet[Event]:
    asked = Q()
    if given["actor"]:
        asked &= is_object(given["actor"], path="actor")
    if given["kind"]:
        asked &= Q(kind__startswith=given["kind"])
    if given["text"]:
        asked &= Q(message__icontains=given["text"])
    return audit_trail().filter(asked)

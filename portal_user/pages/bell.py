"""Shows a person's notices: all by page, and the newest in the bell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.urls import reverse

from accounts.policy import is_platform_admin
from core.pages.parts import ListFoot, Tab
from core.rest.pagination import CURSOR, NEWEST_FIRST
from journal.models import Event, Notice
from journal.notices.kinds import NoticeKind
from journal.notices.selectors import notices_of
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell
from slices.selectors import slices_visible_to

NEWEST_MAX: Final = 10
UNREAD: Final = "unread"


@dataclass(frozen=True, slots=True)
class NoticeRow:
    id: UUID
    at: datetime
    kind: str
    severity: str
    text: str
    is_unread: bool
    url: str  # of what it is about; empty: there is no page
    read_url: str  # empty: read, or not allowed

    @classmethod
    def of(cls, notice: Notice, request: PageRequest, slices: Mapping[UUID, str]) -> NoticeRow:
        is_unread = notice.read_at is None
        return cls(
            id=notice.pk,
            at=notice.created_at,
            kind=str(NoticeKind(notice.kind).label),
            severity=notice.event.severity,
            text=notice.event.message,
            is_unread=is_unread,
            url=_subject_url(notice.event, slices, is_admin=is_platform_admin(request.user)),
            read_url=reverse("notice-read", args=[notice.pk]) if is_unread and request.may_write else "",
        )


@dataclass(frozen=True, slots=True)
class NewestNotices:
    rows: tuple[NoticeRow, ...]
    url: str
    read_all_url: str  # empty: all are read, or not allowed

    @classmethod
    def build(cls, request: PageRequest) -> NewestNotices:
        rows = _rows(list(notices_of(request.user)[:NEWEST_MAX]), request)
        return cls(rows, reverse("notices"), _read_all_url(request, rows))


@dataclass(frozen=True, slots=True)
class NoticesPage:
    shell: Shell
    rows: tuple[NoticeRow, ...]
    foot: ListFoot
    tabs: tuple[Tab, ...]
    list_url: str
    read_all_url: str
    read_only: str
    why_none: str

    @classmethod
    def build(cls, request: PageRequest) -> NoticesPage:
        only_unread = request.GET.get(UNREAD) == "true"
        notices = notices_of(request.user)
        page = page_of(request, notices.filter(read_at=None) if only_unread else notices, ordering=NEWEST_FIRST)
        rows, url = _rows(page.rows, request), reverse("notices")
        filters = {UNREAD: "true" if only_unread else ""}
        tabs = (Tab("All", url, not only_unread), Tab("Unread", url_with(url, {UNREAD: "true"}), only_unread))
        return cls(
            shell=Shell.user(request, page="notices"),
            rows=rows,
            foot=foot_of(page, url, filters),
            tabs=tabs,
            list_url=url_with(url, filters, part="list", cursor=request.GET.get(CURSOR, "")),
            read_all_url=_read_all_url(request, rows),
            read_only=why_not_write(request),
            why_none="Nothing unread" if only_unread else "No notices yet",
        )


def _rows(notices: Sequence[Notice], request: PageRequest) -> tuple[NoticeRow, ...]:
    ids = {notice.event.slice_id for notice in notices if notice.event.slice_id}
    slices = dict(slices_visible_to(request.user).filter(pk__in=ids).values_list("pk", "name")) if ids else {}
    return tuple(NoticeRow.of(notice, request, slices) for notice in notices)


def _read_all_url(request: PageRequest, rows: Sequence[NoticeRow]) -> str:
    return reverse("notices-read-all") if request.may_write and any(row.is_unread for row in rows) else ""


def _subject_url(event: Event, slices: Mapping[UUID, str], *, is_admin: bool) -> str:
    name = slices.get(event.slice_id) if event.slice_id else None
    if event.gpr_id is not None:
        return reverse("gpr", args=[event.gpr_id])
    if name is not None:
        return reverse("access" if "namespace" in event.kind else "workspace", args=[name])
    if event.kind == "slice.member_invited":
        return reverse("workspaces")
    return reverse("admin-clusters") if is_admin and event.cluster_id is not None else ""

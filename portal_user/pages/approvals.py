"""Shows requests that wait for the reader's decision, and the reader's deputies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.urls import reverse

from core.pages import words
from core.pages.parts import ListFoot
from gpr.approvals.selectors import ApproverRights
from gpr.models import Gpr
from gpr.requests.selectors import DUE_ORDER, approvals_visible_to
from portal_shared.access import PageRequest
from portal_shared.forms.questions import Question, sent
from portal_shared.forms.service_form import ServiceForm
from portal_shared.parts.gpr_box import ask_of
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.forms import DeputyForm, ManyForm
from slices.deputies.selectors import deputies_involving
from slices.deputies.services import may_name_deputies
from slices.models import Deputy

TOGETHER_MAX = 50


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """`why_not`: why the reader may not approve it."""

    id: UUID
    name: str
    mark: WorkspaceMark
    owner: str
    ask: str
    duration_s: int
    priority: int
    reasons: tuple[str, ...]
    why_not: str
    deputy_for: str
    decide_by_at: datetime | None
    approve_url: str
    reject_url: str

    @classmethod
    def of(cls, gpr: Gpr, rights: ApproverRights, why_not: str, *, may_write: bool) -> ApprovalRow:
        deputy = rights.deputy_for(gpr)
        return cls(
            id=gpr.pk,
            name=gpr.name,
            mark=WorkspaceMark.of(gpr.slice),
            owner=gpr.owner.name,
            ask=ask_of(gpr),
            duration_s=gpr.duration_s,
            priority=gpr.priority,
            reasons=tuple(gpr.approval_reasons),
            why_not=why_not,
            deputy_for=deputy.approver.name if deputy else "",
            decide_by_at=gpr.decide_by_at,
            approve_url=reverse("gpr-approve", args=[gpr.pk]) if may_write and not why_not else "",
            reject_url=reverse("gpr-reject", args=[gpr.pk]) if may_write else "",
        )


@dataclass(frozen=True, slots=True)
class DeputyRow:
    id: UUID
    approver: str
    user: str
    starts_at: datetime
    ends_at: datetime
    withdraw_url: str

    @classmethod
    def of(cls, row: Deputy, request: PageRequest) -> DeputyRow:
        is_own = request.may_write and row.approver == request.user
        url = reverse("deputy-withdraw", args=[row.pk]) if is_own else ""
        return cls(row.pk, row.approver.name, row.user.name, row.starts_at, row.ends_at, url)


@dataclass(frozen=True, slots=True)
class ApprovalsPage:
    shell: Shell
    rows: tuple[ApprovalRow, ...]
    foot: ListFoot
    deputies: tuple[DeputyRow, ...]
    name_url: str  # empty: the reader names no deputies
    approve_url: str  # of many at once; empty: there are not so many
    reject_url: str
    url: str  # of its fragment

    @classmethod
    def build(cls, request: PageRequest) -> ApprovalsPage:
        url = reverse("approvals")
        found = page_of(request, approvals_visible_to(request.user, now=request.now), ordering=DUE_ORDER)
        rights = ApproverRights.load(request.user, now=request.now)
        whys = rights.whys_not(found.rows, now=request.now)
        return cls(
            shell=Shell.user(request, page="approvals"),
            rows=tuple(ApprovalRow.of(gpr, rights, whys[gpr.pk], may_write=request.may_write) for gpr in found.rows),
            foot=foot_of(found, url),
            deputies=tuple(DeputyRow.of(row, request) for row in deputies_involving(request.user).filter(ends_at__gt=request.now)),
            name_url=reverse("deputy-name") if request.may_write and may_name_deputies(request.user) else "",
            approve_url=reverse("approve-many") if request.may_write and list(whys.values()).count("") > 1 else "",
            reject_url=reverse("reject-many") if request.may_write and len(whys) > 1 else "",
            url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "list"}),
        )


def offered_to(request: PageRequest, *, approval: bool) -> list[tuple[str, str]]:
    """Value and label of those that may be decided on together, the most urgent first."""
    gprs = list(approvals_visible_to(request.user, now=request.now).order_by(*DUE_ORDER)[:TOGETHER_MAX])
    whys = ApproverRights.load(request.user, now=request.now).whys_not(gprs, now=request.now) if approval else {}
    labels = ((gpr, f"{gpr.name}, {gpr.owner.name} in {gpr.slice.name}: {ask_of(gpr)}") for gpr in gprs if not whys.get(gpr.pk))
    return [(f"{gpr.pk}.{gpr.version}", label) for gpr, label in labels]


def many_question(request: PageRequest, form: ManyForm, *, approval: bool) -> Question:
    texts = ("Approve requests?", "Those that you choose join the queue, and their promises count from now.", "Approve the requests")
    if not approval:
        texts = ("Reject requests?", "Their owners read the reason.", "Reject the requests")
    title, text, verb = texts
    return Question(
        title=title,
        text=text,
        verb=verb,
        url=reverse("approve-many" if approval else "reject-many"),
        back_url=reverse("approvals"),
        form=form,
        shell=Shell.user(request, page="approvals"),
        keep="Decide later",
        is_plain=approval,
        closed="" if form.fields["gprs"].choices else "Nothing waits for you any more.",  # type: ignore[attr-defined]
    )


def name_question(request: PageRequest, form: DeputyForm) -> Question:
    return Question(
        title="Name a deputy?",
        text="The deputy decides in your place on requests that wait for your approval, and sees no more of them than that page shows.",
        points=("You go on deciding, too.", "Each decision of the deputy is recorded as made for you."),
        verb="Name the deputy",
        url=reverse("deputy-name"),
        back_url=reverse("approvals"),
        form=form,
        shell=Shell.user(request, page="approvals"),
        keep="Not now",
        is_plain=True,
    )


def withdraw_question(request: PageRequest, row: Deputy) -> Question:
    until = words.moment(row.ends_at, now=request.now, zone=request.zone)
    return Question(
        title=f"Withdraw {row.user.name}?",
        text=f"{row.user.name} was to decide for {row.approver.name} until {until}. Decisions that you have made stay.",
        verb="Withdraw the deputy",
        url=reverse("deputy-withdraw", args=[row.pk]),
        back_url=reverse("approvals"),
        form=ServiceForm(sent(request)),
        shell=Shell.user(request, page="approvals"),
    )

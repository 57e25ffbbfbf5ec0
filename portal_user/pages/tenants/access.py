"""Shows namespaces and kubeconfigs of a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q
from django.http import QueryDict
from django.urls import reverse

from accounts.policy import ObjectKind, Verb, may, may_all
from core.pages import words
from portal_shared.access import PageRequest, why_not_write
from portal_shared.forms.questions import Question
from portal_shared.forms.service_form import ServiceForm
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.forms import KubeconfigForm
from portal_user.pages.requests.listing import may_create
from protocol.tenancy.workspaces import BindingState
from slices.models import LIVE_STATES, PENDING, Kubeconfig, KubeconfigState, Membership, Namespace, Slice

ROWS_MAX = 200
OVER_SHOWN = timedelta(days=7)  # how long ended kubeconfigs are listed
STATE_WORDS = {BindingState.READY: "Ready", BindingState.WAITING: "Waiting", BindingState.CONFLICT: "In conflict"}
# Classes of egs.css.
STATE_CSS = {BindingState.READY: "good", BindingState.CONFLICT: "late"}
NOT_HEARD = "The cluster's agent has not reported it yet."
NEEDS_APPROVAL = "An administrator has to approve this name. Until then nothing is bound."
NEEDS_MEMBER = "Only members get a kubeconfig. Ask an owner to add you."
BEING_REVOKED = "Its cluster has not confirmed this yet."
NEEDS_READY = "A kubeconfig needs a namespace that is ready."


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    name: str
    cluster: str
    word: str
    css: str
    why: str
    adopt_url: str = ""  # empty: not allowed, or nothing to adopt
    approve_url: str = ""  # both empty: not allowed, or nothing to decide
    refuse_url: str = ""

    @classmethod
    def of(cls, row: Namespace, *, may_decide: bool) -> NamespaceRow:
        if row.state == PENDING:
            approve, refuse = (_url(name, row) if may_decide else "" for name in ("namespace-approve", "namespace-refuse"))
            return cls(row.name, row.cluster.name, "Waits for approval", "soft", NEEDS_APPROVAL, approve_url=approve, refuse_url=refuse)
        state = BindingState(row.state)
        return cls(
            name=row.name,
            cluster=row.cluster.name,
            word=STATE_WORDS[state],
            css=STATE_CSS.get(state, "soft"),
            why=row.detail or (NOT_HEARD if state is BindingState.WAITING else ""),
            adopt_url=_url("namespace-adopt", row) if may_decide and can_be_adopted(row) else "",
        )


@dataclass(frozen=True, slots=True)
class KubeconfigRow:
    id: UUID
    user: str
    cluster: str
    word: str
    css: str
    why: str
    asked_at: datetime
    expires_at: datetime | None
    revoke_url: str  # empty: ended, or not allowed

    @classmethod
    def of(cls, row: Kubeconfig, *, now: datetime, is_writable: bool) -> KubeconfigRow:
        state = KubeconfigState(row.state)
        css = {KubeconfigState.GIVEN: "good", KubeconfigState.FAILED: "late"}.get(state, "soft")
        may_revoke = row.is_live and is_writable
        ends_at = row.expires_at or row.asked_at + timedelta(seconds=row.duration_s)
        may_open = state is KubeconfigState.REVOKED and row.closed_at is None and now < ends_at
        return cls(
            id=row.pk,
            user=row.user.name,
            cluster=row.cluster.name,
            word="Being revoked" if may_open else str(state.label),
            css="late" if may_open else css,
            why=f"{row.detail} {BEING_REVOKED}" if may_open else row.detail,
            asked_at=row.asked_at,
            expires_at=row.expires_at,
            revoke_url=reverse("kubeconfig-revoke", args=[row.slice.name, row.pk]) if may_revoke else "",
        )


@dataclass(frozen=True, slots=True)
class AccessPage:
    shell: Shell
    mark: WorkspaceMark
    namespaces: tuple[NamespaceRow, ...]
    kubeconfigs: tuple[KubeconfigRow, ...]
    url: str
    ask_url: str  # empty: not possible now, see `why_not`
    why_not: str
    channels_url: str  # empty: not allowed

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> AccessPage:
        why_not = why_no_kubeconfig(request, slice_)
        return cls(
            shell=shell_of(request, slice_),
            mark=WorkspaceMark.of(slice_),
            namespaces=(*_namespaces(request, slice_), *_unbindings(slice_)),
            kubeconfigs=tuple(_kubeconfigs(request, slice_)),
            url=reverse("access", args=[slice_.name]),
            ask_url="" if why_not else reverse("kubeconfig-ask", args=[slice_.name]),
            why_not=why_not,
            channels_url=reverse("workspace-channels", args=[slice_.name]) if may(request.user, Verb.MANAGE, slice_) else "",
        )


@dataclass(frozen=True, slots=True)
class KubeconfigPage:
    """Shows that a kubeconfig is being made, its text once, or an error."""

    shell: Shell
    title: str
    url: str
    back_url: str
    expires_at: datetime | None
    text: str = ""
    refused: str = ""
    is_asked: bool = False  # somebody asked to show it, so the page waits for it

    @classmethod
    def of(cls, request: PageRequest, row: Kubeconfig, *, text: str = "", refused: str = "", is_asked: bool = False) -> KubeconfigPage:
        return cls(
            shell=shell_of(request, row.slice),
            title=f"Kubeconfig for {row.slice.name} in {row.cluster.name}",
            url=reverse("kubeconfig", args=[row.slice.name, row.pk]),
            back_url=reverse("access", args=[row.slice.name]),
            expires_at=row.expires_at,
            text=text,
            refused=refused,
            is_asked=is_asked,
        )


def shell_of(request: PageRequest, slice_: Slice, *, page: str = "access") -> Shell:
    return Shell.user(request, page=page, slice_=slice_, may_create=may_create(request, slice_))


def clusters_ready(slice_: Slice) -> list[str]:
    """Clusters in which a namespace is ready."""
    ready = Namespace.objects.filter(slice=slice_, state=BindingState.READY)
    return list(ready.order_by("cluster__name").values_list("cluster__name", flat=True).distinct())


def ask_question(request: PageRequest, slice_: Slice, form: KubeconfigForm) -> Question:
    return Question(
        title=f"Make a kubeconfig for {slice_.name}?",
        text="The agent of the cluster creates your account and token, shown once.",
        points=(
            "It gives access to this workspace's namespaces in that cluster, with the rights of your role.",
            "Ends on expiry, on revocation, or when you leave the workspace.",
            f"At most {words.duration(slice_.kubeconfig_max_s)} here.",
        ),
        verb="Make kubeconfig",
        url=reverse("kubeconfig-ask", args=[slice_.name]),
        back_url=reverse("access", args=[slice_.name]),
        form=form,
        shell=shell_of(request, slice_),
        keep="Not now",
        is_plain=True,
    )


def revoke_question(request: PageRequest, row: Kubeconfig, data: QueryDict | None) -> Question:
    return Question(
        title=f"Revoke the kubeconfig of {row.user.name} for {row.cluster.name}?",
        text="The cluster stops accepting it within seconds.",
        points=("Pods and jobs continue.", "Open watches may last up to an hour."),
        verb="Revoke it",
        url=reverse("kubeconfig-revoke", args=[row.slice.name, row.pk]),
        back_url=reverse("access", args=[row.slice.name]),
        form=ServiceForm(data),
        shell=shell_of(request, row.slice),
        closed="" if row.is_live else "This kubeconfig has ended: there is nothing to revoke.",
    )


def adopt_question(request: PageRequest, row: Namespace, data: QueryDict | None) -> Question:
    return Question(
        title=f"Let {row.slice.name} adopt {row.name}?",
        text=f"Namespace {row.name} of cluster {row.cluster.name} existed before. The workspace takes it over with everything in it.",
        points=(
            "Members can read and change everything in it, secrets included.",
            "Its pods lose all connections but those within the workspace; new ones must keep to Pod Security restricted.",
        ),
        verb="Let it adopt",
        url=reverse("namespace-adopt", args=[row.slice.name, row.pk]),
        back_url=reverse("access", args=[row.slice.name]),
        form=ServiceForm(data),
        shell=shell_of(request, row.slice),
        keep="Leave it",
        closed="" if can_be_adopted(row) else "It is not in conflict, or may be adopted already: there is nothing to allow any more.",
    )


def can_be_adopted(row: Namespace) -> bool:
    return row.state == BindingState.CONFLICT and not row.may_adopt


def _url(name: str, row: Namespace) -> str:
    return reverse(name, args=[row.slice.name, row.pk])


def why_no_kubeconfig(request: PageRequest, slice_: Slice) -> str:
    """Empty: the reader can get one."""
    if not request.may_write:
        return why_not_write(request)
    if not Membership.objects.filter(slice=slice_, user=request.user).exists():
        return NEEDS_MEMBER
    if slice_.settled_at is not None:
        return f"The workspace is {slice_.get_life_display().lower()}."
    return "" if clusters_ready(slice_) else NEEDS_READY


def _namespaces(request: PageRequest, slice_: Slice) -> Iterator[NamespaceRow]:
    may_decide = request.may_write and may_all(request.user, Verb.DECIDE, ObjectKind.NAMESPACE)
    for row in Namespace.with_pending.filter(slice=slice_).select_related("slice", "cluster")[:ROWS_MAX]:
        yield NamespaceRow.of(row, may_decide=may_decide)


def _unbindings(slice_: Slice) -> Iterator[NamespaceRow]:
    for row in slice_.unbindings.select_related("cluster")[:ROWS_MAX]:
        yield NamespaceRow(row.name, row.cluster.name, "Being unbound", "soft", row.detail or NOT_HEARD)


def _kubeconfigs(request: PageRequest, slice_: Slice) -> Iterator[KubeconfigRow]:
    """Loads live ones and those that ended recently."""
    is_owner = may(request.user, Verb.MANAGE, slice_)
    rows = slice_.kubeconfigs.filter(Q(state__in=LIVE_STATES) | Q(ended_at__gt=request.now - OVER_SHOWN))
    for row in rows.select_related("slice", "cluster", "user")[:ROWS_MAX]:
        yield KubeconfigRow.of(row, now=request.now, is_writable=request.may_write and (is_owner or row.user_id == request.user.pk))

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, TypeVar

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.people.services import user_disable
from core.errors import Conflict
from core.words import duration, utc
from journal.hints import TICK, hint
from journal.models import Channel, Severity
from journal.notices.channels.services import channel_delete
from journal.notices.periodic import Throttle
from journal.services import event_record
from slices.budgets.services import budget_delete
from slices.kubeconfigs.services import kubeconfigs_revoke
from slices.models import Life, Namespace, Project, Slice
from slices.namespaces.services import namespace_unbind
from slices.quotas.services import quota_delete, quotas_keep
from slices.services import member_take, project_admin_remove

Row = TypeVar("Row", Project, Slice)
WARNED_DAYS: Final = (1, 3, 14)
ENDS_SOON: Final = timedelta(days=WARNED_DAYS[-1])
_THROTTLE: Final = Throttle(timedelta(minutes=1))
DOES: Final = {Life.ARCHIVED: "archived", Life.REMOVED: "removed"}


@transaction.atomic
def slice_close(*, slice_: Slice, to: Life, drain: bool, actor: User | None, now: datetime, why: str = "") -> None:
    """It takes no requests from now on; ticks end the rest (gpr/closing). `actor` None: its time was over.

    Raises Conflict for one that is removed.
    """
    if not _close(_locked(Slice.objects.all(), slice_), to, drain, now):
        return
    rest = "Running requests are ended now." if drain else "Running requests run to their ends."
    text = f"Workspace {slice_.name} is {DOES[to]}. It takes no requests any more, and what waits is canceled. {rest} {why}".strip()
    event_record(kind="slice.closed", message=text, at=now, actor=actor, severity=Severity.WARNING, slice_id=slice_.pk, new=to)
    hint(TICK)
    slice_.refresh_from_db()


@transaction.atomic
def slice_restore(*, slice_: Slice, actor: User, now: datetime) -> None:
    """An end that is over is forgotten. Raises Conflict unless it is archived, in a project that is open."""
    project = _locked(Project.objects.all(), slice_.project)  # who closes it closes the workspace, too
    found = _locked(Slice.objects.all(), slice_)
    if not project.is_open:
        raise Conflict(f"Project {project.name} is not open. Restore the project first.")
    _open(found)
    text = f"Workspace {slice_.name} is open again. Canceled and ended requests stay as they are."
    if found.ends_at is not None and found.ends_at <= now:
        Slice.objects.filter(pk=slice_.pk).update(ends_at=project.ends_at, warned_days=None)
        text += " It ends with its project now." if project.ends_at else " It has no end now."
    event_record(kind="slice.restored", message=text, at=now, actor=actor, slice_id=slice_.pk)
    slice_.refresh_from_db()


@transaction.atomic
def project_close(*, project: Project, to: Life, drain: bool, actor: User | None, now: datetime, why: str = "") -> None:
    """Closes its workspaces as well. `actor` None: its time was over. Raises Conflict for one that is removed."""
    found = _locked(Project.objects.all(), project)
    had_closed_at = found.closed_at
    if not _close(found, to, drain, now):
        return
    text = f"Project {project.name} is {DOES[to]}, with all its workspaces. {why}".strip()
    event_record(kind="project.closed", message=text, at=now, actor=actor, severity=Severity.WARNING, new=to)
    slices = project.slices.exclude(life=Life.REMOVED).order_by("pk")
    if to is Life.ARCHIVED:  # those that were archived before stay as they are
        slices = slices.filter(Q(life=Life.OPEN) | Q(closed_at=had_closed_at))
    for slice_ in slices:
        slice_close(slice_=slice_, to=to, drain=drain, actor=actor, now=now, why=why)
    project.refresh_from_db()


@transaction.atomic
def project_restore(*, project: Project, actor: User, now: datetime) -> None:
    """Opens the workspaces that were archived with it. An end that is over is forgotten. Raises Conflict unless it is archived."""
    found = _locked(Project.objects.all(), project)
    closed_at = found.closed_at
    _open(found)
    text = f"Project {project.name} is open again."
    if found.ends_at is not None and found.ends_at <= now:
        Project.objects.filter(pk=found.pk).update(ends_at=None)
        text += " It has no end now."
    event_record(kind="project.restored", message=text, at=now, actor=actor)
    for slice_ in project.slices.filter(life=Life.ARCHIVED, closed_at=closed_at).select_related("project").order_by("pk"):
        slice_restore(slice_=slice_, actor=actor, now=now)
    project.refresh_from_db()


@transaction.atomic
def slice_settle(*, slice_: Slice, now: datetime) -> None:
    """Settles a closed workspace without running or waiting requests: ends its accounts, and gives back everything of a removed one."""
    quotas_keep([slice_.project_id])  # before the workspace, as starts do
    found = _locked(Slice.objects.filter(settled_at=None), slice_)
    kubeconfigs_revoke(found.kubeconfigs.all(), why=f"Workspace {found.name} is {DOES[Life(found.life)]}.", actor=None, now=now)
    if found.life == Life.REMOVED:
        _give_back(found, now)
    Slice.objects.filter(pk=found.pk).update(settled_at=now)
    text = f"Nothing of workspace {found.name} runs or waits any more."
    event_record(kind="slice.settled", message=text, at=now, slice_id=found.pk)


@transaction.atomic
def project_settle(*, project: Project, now: datetime) -> None:
    """Settles a closed project whose workspaces are settled."""
    found = _locked(Project.objects.filter(settled_at=None), project)
    if found.life == Life.REMOVED:
        for row in found.admins.select_related("user", "project"):
            project_admin_remove(row=row, actor=None, now=now)
        _give_back_shares(found, now)
    Project.objects.filter(pk=found.pk).update(settled_at=now)
    event_record(kind="project.settled", message=f"Nothing of project {found.name} runs or waits any more.", at=now)


def slices_warn(*, now: datetime) -> None:
    """Does nothing within a minute of the last time."""
    if _THROTTLE.is_due(now):
        slices_record_ends(now=now)


def slices_record_ends(*, now: datetime) -> None:
    """Tells 14, 3 days and 1 day before the end of a workspace, once each. Runs one query when none ends soon."""
    for slice_ in Slice.objects.filter(life=Life.OPEN, ends_at__gt=now, ends_at__lte=now + ENDS_SOON):
        days = next(days for days in WARNED_DAYS if slice_.ends_at is not None and slice_.ends_at <= now + timedelta(days=days))
        if slice_.warned_days is None or slice_.warned_days > days:
            _warn(slice_, days, now)


@transaction.atomic
def _warn(slice_: Slice, days: int, now: datetime) -> None:
    # Another process may be about to tell the same.
    same = Slice.objects.filter(pk=slice_.pk, ends_at=slice_.ends_at, warned_days=slice_.warned_days)
    if slice_.ends_at is None or not same.update(warned_days=days):
        return
    left = duration(int((slice_.ends_at - now).total_seconds()))
    text = f"Workspace {slice_.name} ends at {utc(slice_.ends_at)}, in {left}. Ask an administrator if you need it longer."
    event_record(kind="slice.ends_soon", message=text, at=now, severity=Severity.WARNING, slice_id=slice_.pk)


def _give_back(slice_: Slice, now: datetime) -> None:
    for namespace in Namespace.with_pending.filter(slice=slice_).select_related("slice", "cluster"):
        namespace_unbind(namespace=namespace, actor=None, now=now)
    slice_.groups.all().delete()
    slice_.invitations.all().delete()
    for account in slice_.service_accounts.filter(user__is_active=True).select_related("user"):
        user_disable(user=account.user, actor=None, now=now)
    for membership in slice_.memberships.select_related("user"):
        member_take(slice_=slice_, user=membership.user, actor=None, now=now)
    for channel in Channel.objects.filter(slice=slice_):
        channel_delete(channel=channel, actor=None, now=now)
    _give_back_shares(slice_, now)


def _give_back_shares(owner: Project | Slice, now: datetime) -> None:
    why = f"{owner.name} is removed."
    for quota in owner.quotas.select_related("project", "slice__project"):
        quota_delete(quota=quota, actor=None, now=now, why=why)
    for budget in owner.budgets.select_related("project", "slice__project"):
        budget_delete(budget=budget, actor=None, now=now, why=why)


def _locked(rows: QuerySet[Row], row: Row) -> Row:
    return rows.select_for_update(no_key=True).get(pk=row.pk)


def _close(found: Project | Slice, to: Life, drain: bool, now: datetime) -> bool:
    """Returns whether that is news."""
    if (found.life, found.is_drained or not drain) == (to, True):
        return False
    if found.life == Life.REMOVED and to is not Life.REMOVED:
        raise Conflict(f"{found.name} is removed, for good.")
    found.life, found.closed_at, found.is_drained, found.settled_at = to, now, drain, None
    found.save(update_fields=["life", "closed_at", "is_drained", "settled_at"])
    return True


def _open(found: Project | Slice) -> None:
    if found.life != Life.ARCHIVED:
        raise Conflict(f"{found.name} is {Life(found.life).label.lower()}. Only an archived one can be opened again.")
    found.life, found.closed_at, found.is_drained, found.settled_at = Life.OPEN, None, False, None
    found.save(update_fields=["life", "closed_at", "is_drained", "settled_at"])

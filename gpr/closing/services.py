"""Each step is one transaction that looks at what there is, so a tick goes on where a killed one stopped."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from core.written_sql import TimeParam, WrittenQuery
from gpr.allocation.stored_plan import plan_lock
from gpr.bookings.services import series_cancel
from gpr.models import PROVISIONED, BookingSeries, EndReason, Gpr, GprState
from gpr.requests.editing import gprs_cancel
from gpr.requests.ending import exit_begin
from journal.guard import set_aside_on_error
from slices.closing.services import DOES, project_close, project_settle, slice_close, slice_settle
from slices.models import Life, Project, Slice
from slices.quotas.services import quotas_keep

WAITING: Final = (GprState.QUEUED, GprState.PENDING_APPROVAL)
AT_ONCE: Final = 200


def closing_advance(*, now: datetime) -> None:
    """Archive projects and workspaces that are over, and bring the closing of others on. Runs two queries when there is none."""
    for project in _PROJECTS_DUE(now=now):
        with set_aside_on_error("project_closing", f"Project {project.name} could not be closed", now=now):
            _advance_project(project, now)
    for pk, name in _SLICES_DUE(now=now):
        with set_aside_on_error("workspace_closing", f"Workspace {name} could not be closed", now=now):
            _advance(pk, now)


def _slices_due() -> QuerySet[Any, tuple[UUID, str]]:
    """Returns workspaces with something to do now: most boxes of an archived workspace run on for a while."""
    of_slice = Gpr.objects.filter(slice=OuterRef("pk"))
    booked = Exists(BookingSeries.objects.filter(slice=OuterRef("pk"), canceled_at=None))
    waits, holds = Exists(of_slice.filter(state__in=WAITING)), Exists(of_slice.filter(state__in=PROVISIONED))
    drains = Q(is_drained=True) & Exists(of_slice.filter(state__in=PROVISIONED - {GprState.EXITING}))
    # A request that was filed during the closing waits even after it has settled.
    is_left = Q(waits) | Q(settled_at=None) & (Q(booked) | drains | ~Q(holds))
    rows = Slice.objects.filter(Q(life=Life.OPEN, ends_at__lte=TimeParam("now")) | ~Q(life=Life.OPEN) & is_left)
    return rows.order_by("pk").values_list("pk", "name")


_SLICES_DUE: Final = WrittenQuery(_slices_due())
_HAS_UNSETTLED: Final = Exists(Slice.objects.filter(project=OuterRef("pk"), settled_at=None))
_PROJECTS_DUE: Final = WrittenQuery(
    Project.objects.filter(Q(life=Life.OPEN, ends_at__lte=TimeParam("now")) | ~Q(life=Life.OPEN) & Q(settled_at=None) & ~Q(_HAS_UNSETTLED))
)


@transaction.atomic
def _advance_project(project: Project, now: datetime) -> None:
    if not project.is_open:
        project_settle(project=project, now=now)
        return
    plan_lock()
    quotas_keep([project.pk])
    found = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    if found.is_open and found.ends_at is not None and found.ends_at <= now:  # else it was given a later end meanwhile
        project_close(project=found, to=Life.ARCHIVED, drain=False, actor=None, now=now, why="Its time is over.")


@transaction.atomic
def _advance(pk: UUID, now: datetime) -> None:
    plan_lock()
    quotas_keep(Slice.objects.filter(pk=pk).values_list("project", flat=True))
    slice_ = Slice.objects.select_for_update(no_key=True).get(pk=pk)
    if slice_.is_open and (slice_.ends_at is None or now < slice_.ends_at):
        return  # restored meanwhile
    if slice_.is_open:
        slice_close(slice_=slice_, to=Life.ARCHIVED, drain=False, actor=None, now=now, why="Its time is over.")
    why = f"Workspace {slice_.name} is {DOES[Life(slice_.life)]}."
    for series in BookingSeries.objects.filter(slice=slice_, canceled_at=None):
        series_cancel(series=series, actor=None, now=now)
    gprs = Gpr.objects.filter(slice=slice_).select_related("slice").order_by("pk")
    gprs_cancel([(gpr, why) for gpr in gprs.filter(state__in=WAITING)[:AT_ONCE]], actor=None, now=now)
    if slice_.is_drained:
        for gpr in gprs.filter(state__in=PROVISIONED - {GprState.EXITING})[:AT_ONCE]:
            exit_begin(gpr=gpr, reason=EndReason.ADMIN, now=now, why=why)
    if slice_.settled_at is None and not gprs.filter(state__in=[*WAITING, *PROVISIONED]).exists():
        slice_settle(slice_=slice_, now=now)

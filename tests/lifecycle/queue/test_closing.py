"""The end of a workspace or a project: by its date, archived, or removed; what runs and waits ends first, and history stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from accounts.models import PlatformRole, Scope
from core.errors import Conflict, InvalidInput, OverPolicy
from gpr.allocation import allocator
from gpr.approvals.services import gpr_approve
from gpr.bookings.services import SeriesTerms, series_create
from gpr.closing import services as closing
from gpr.closing.selectors import endings_of
from gpr.models import BookingSeries, EndReason, Gpr, GprState, RepeatRule
from journal.models import Event, Notice
from journal.notices.outbox import outbox_expand
from protocol.assignments import Phase
from slices.closing import services as slices_closing
from slices.closing.services import project_close, project_restore, slice_close, slice_restore, slices_record_ends
from slices.models import Kubeconfig, Life, Membership, Namespace, Quota, Slice, Unbinding
from slices.quotas.services import quota_create
from slices.services import project_set_end, slice_create, slice_set_end
from tests import factories
from tests.api.conftest import Caller
from tests.builders import SHAPE, make_slice, make_user, spec
from tests.lifecycle.stage import Stage, fresh
from tests.slices import kubeconfigs

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

DAY = timedelta(days=1)
S = GprState


@pytest.fixture
def stage() -> Stage:
    return Stage(nodes=2)


def busy(stage: Stage) -> tuple[Gpr, Gpr, Gpr, BookingSeries, Kubeconfig]:
    """A workspace with one of everything: it runs, waits, is booked, again and again, and has a kubeconfig."""
    runs = stage.active(duration_s=3600)
    waits = stage.submit()
    booked = stage.submit(earliest_start_at=stage.now + 10 * DAY, is_booking=True)
    asked = SeriesTerms(
        spec=spec(stage.slice), first_start_at=stage.now + 60 * DAY, rule=RepeatRule.WEEKLY, zone="UTC", count=2, until_at=None
    )
    series = series_create(actor=stage.owner, ask=asked, now=stage.now)
    kubeconfigs.ready_namespace(stage.slice, stage.cluster, at=stage.now)
    opened = kubeconfigs.made(stage.slice, stage.cluster, stage.owner, at=stage.now)
    quota_create(owner=stage.slice.project, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    quota_create(owner=stage.slice, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=stage.admin, now=stage.now)
    return runs, waits, booked, series, opened


def closes(stage: Stage, to: Life, *, drain: bool = False) -> None:
    slice_close(slice_=stage.slice, to=to, drain=drain, actor=stage.admin, now=stage.now)


def leave(stage: Stage, gpr: Gpr) -> None:
    stage.say(gpr, Phase.EXITING, Phase.RELEASED)
    stage.tick()


def test_an_archived_workspace_lets_what_runs_go_on_cancels_what_waits_and_takes_nothing_new(stage: Stage) -> None:
    runs, waits, booked, series, opened = busy(stage)
    endings = endings_of(stage.slice)
    assert (endings.running.names, endings.waiting.names, endings.booked.names) == ((runs.name,), (waits.name,), (booked.name,))
    assert (endings.series.count, endings.kubeconfigs.count, endings.namespaces.names) == (1, 1, (f"{stage.cluster.name}/train",))

    closes(stage, Life.ARCHIVED)
    stage.tick()

    assert [fresh(gpr).state for gpr in (runs, waits, booked)] == [S.ACTIVE, S.CANCELED, S.CANCELED]
    series.refresh_from_db()
    opened.refresh_from_db()
    assert (series.canceled_at, opened.is_live) == (stage.now, True)  # its owner goes on working in what runs
    another = kubeconfigs.made(stage.slice, stage.cluster, stage.owner, at=stage.now)
    with pytest.raises(Conflict):
        stage.submit()
    assert runs.ends_at is not None
    stage.after((runs.ends_at - stage.now).total_seconds())
    stage.tick()
    leave(stage, runs)
    stage.tick()

    stage.slice.refresh_from_db()
    opened.refresh_from_db()
    another.refresh_from_db()
    assert (fresh(runs).end_reason, stage.slice.settled_at) == (EndReason.EXPIRED, stage.now)
    assert (opened.is_live, another.is_live) == (False, False)
    with pytest.raises(Conflict):
        kubeconfigs.asked(stage.slice, stage.cluster, stage.owner, at=stage.now)
    assert (Namespace.objects.count(), Membership.objects.filter(slice=stage.slice).count(), Quota.objects.count()) == (1, 1, 2)
    slice_restore(slice_=stage.slice, actor=stage.admin, now=stage.now)
    assert stage.submit().state == S.QUEUED


def test_a_removed_workspace_drains_gives_everything_back_and_keeps_its_history_for_auditors(stage: Stage) -> None:
    runs, *_ = busy(stage)
    closes(stage, Life.REMOVED, drain=True)
    stage.tick()
    assert (fresh(runs).state, fresh(runs).end_reason) == (S.EXITING, EndReason.ADMIN)
    assert Membership.objects.filter(slice=stage.slice).exists()
    leave(stage, runs)
    stage.tick()

    stage.slice.refresh_from_db()
    assert stage.slice.settled_at == stage.now
    of_slice = (Namespace.objects, Membership.objects.filter(slice=stage.slice), Quota.objects.filter(slice=stage.slice))
    assert [rows.count() for rows in of_slice] == [0, 0, 0]
    assert list(Unbinding.objects.values_list("name", flat=True)) == ["train"]
    with pytest.raises(Conflict):
        slice_restore(slice_=stage.slice, actor=stage.admin, now=stage.now)
    auditor = make_user()
    type(auditor).objects.filter(pk=auditor.pk).update(role=PlatformRole.AUDITOR)
    auditor.refresh_from_db()
    reads = Caller(factories.token(auditor, *Scope))
    assert reads.get(f"slices/{stage.slice.name}/").json()["life"] == "removed"
    assert reads.get(f"gprs/{runs.pk}/").json()["state"] == "RELEASED"
    told = [row["kind"] for row in reads.get(f"events/?slice={stage.slice.name}").json()["results"]]
    assert {"slice.closed", "slice.settled", "slice.member_removed"} <= set(told)
    assert Caller(factories.token(stage.owner)).get(f"gprs/{runs.pk}/").status_code == 404


class Killed(BaseException):
    pass


STEPS: list[tuple[Any, str]] = [(closing, "series_cancel"), (closing, "gprs_cancel"), (closing, "exit_begin"), (closing, "slice_settle")]
STEPS += [(slices_closing, "_give_back")]


@pytest.mark.parametrize(("place", "name"), STEPS)
def test_a_tick_that_is_killed_in_between_leaves_the_rest_to_the_next(
    stage: Stage, place: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, waits, _, series, _ = busy(stage)
    closes(stage, Life.REMOVED, drain=True)
    real, deaths = getattr(place, name), [Killed]

    def dies(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        if deaths:
            raise deaths.pop()  # what it wrote is lost with its transaction

    monkeypatch.setattr(place, name, dies)
    for _ in range(4):
        try:
            with transaction.atomic():
                stage.tick()
        except Killed:
            continue
        if fresh(runs).state == S.EXITING:
            stage.say(runs, Phase.EXITING, Phase.RELEASED)

    stage.slice.refresh_from_db()
    series.refresh_from_db()
    assert not deaths
    assert (stage.slice.settled_at, fresh(waits).state, series.canceled_at) == (stage.now, S.CANCELED, stage.now)
    assert Event.objects.filter(kind="slice.settled").count() == 1
    assert Event.objects.filter(kind="gpr.transition", gpr_id=waits.pk, new=S.CANCELED).count() == 1


def test_its_end_is_told_14_days_3_days_and_a_day_before_and_then_it_is_archived(stage: Stage) -> None:
    slice_set_end(slice_=stage.slice, ends_at=stage.now + 20 * DAY, actor=stage.admin, now=stage.now)
    waits = stage.submit(duration_s=60)
    Gpr.objects.filter(pk=waits.pk).update(earliest_start_at=stage.now + 21 * DAY)
    days_told = []
    for hour in range(20 * 24 + 1):
        at = stage.now + timedelta(hours=hour)
        before_count = Event.objects.filter(kind="slice.ends_soon").count()
        slices_record_ends(now=at)
        if Event.objects.filter(kind="slice.ends_soon").count() > before_count:
            days_told.append((20 * 24 - hour) / 24)
    outbox_expand(now=stage.now)

    assert days_told == [14, 3, 1]
    assert Notice.objects.filter(user=stage.owner, event__kind="slice.ends_soon").count() == 3
    allocator.tick(now=stage.watched(20 * 86_400))
    stage.slice.refresh_from_db()
    assert (stage.slice.life, fresh(waits).state) == (Life.ARCHIVED, S.CANCELED)
    slice_restore(slice_=stage.slice, actor=stage.admin, now=stage.now)
    assert (stage.slice.ends_at, stage.slice.life) == (None, Life.OPEN)


def test_nothing_is_approved_that_would_end_after_its_workspace_or_in_one_that_is_archived(stage: Stage) -> None:
    asked = stage.submit(priority=300, duration_s=3600)
    slice_set_end(slice_=stage.slice, ends_at=stage.now + timedelta(minutes=30), actor=stage.admin, now=stage.now)
    with pytest.raises(OverPolicy):
        gpr_approve(gpr=fresh(asked), actor=stage.admin, now=stage.now)
    slice_set_end(slice_=stage.slice, ends_at=None, actor=stage.admin, now=stage.now)
    with pytest.raises(InvalidInput):  # it would cancel what waits at once
        slice_set_end(slice_=stage.slice, ends_at=stage.now, actor=stage.admin, now=stage.now)
    closes(stage, Life.ARCHIVED)
    with pytest.raises(Conflict):
        slice_set_end(slice_=stage.slice, ends_at=stage.now + DAY, actor=stage.admin, now=stage.now)
    with pytest.raises(Conflict):
        gpr_approve(gpr=fresh(asked), actor=stage.admin, now=stage.now)
    assert fresh(asked).state == S.PENDING_APPROVAL


def test_what_was_filed_while_it_was_being_archived_is_canceled_and_never_starts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    read_before = Slice.objects.get(pk=stage.slice.pk)
    closes(stage, Life.ARCHIVED)
    stage.tick()
    late = stage.submit(read_before)
    with monkeypatch.context() as patch:
        patch.setattr(allocator, "closing_advance", lambda now: None)
        assert late.pk in stage.tick().skipped

    stage.tick()

    assert fresh(late).state == S.CANCELED


def test_a_project_takes_its_workspaces_along_and_back_but_for_those_archived_before(stage: Stage) -> None:
    project, earlier = stage.slice.project, make_slice(stage.cluster, project=stage.slice.project)
    slice_close(slice_=earlier, to=Life.ARCHIVED, drain=False, actor=stage.admin, now=stage.now - DAY)
    runs = stage.active()

    project_close(project=project, to=Life.ARCHIVED, drain=True, actor=stage.admin, now=stage.now)
    stage.tick()
    with pytest.raises(Conflict):
        slice_create(name="late", project=project, clusters=[], actor=stage.admin, now=stage.now)
    with pytest.raises(Conflict):
        slice_restore(slice_=stage.slice, actor=stage.admin, now=stage.now)
    project.refresh_from_db()
    assert project.settled_at is None
    leave(stage, runs)
    stage.tick()
    project.refresh_from_db()
    assert project.settled_at == stage.now

    project_restore(project=project, actor=stage.admin, now=stage.now)
    assert dict(Slice.objects.values_list("name", "life")) == {stage.slice.name: "open", earlier.name: "archived"}


def test_a_project_that_ends_takes_its_workspaces_with_it_but_not_those_that_end_before(stage: Stage) -> None:
    project, ends_at = stage.slice.project, stage.now + 20 * DAY
    short = slice_create(name="short", project=project, clusters=[stage.cluster], actor=stage.admin, now=stage.now)
    slice_set_end(slice_=short, ends_at=stage.now + 5 * DAY, actor=stage.admin, now=stage.now)

    project_set_end(project=project, ends_at=ends_at, actor=stage.admin, now=stage.now)
    young = slice_create(name="young", project=project, clusters=[stage.cluster], actor=stage.admin, now=stage.now)
    with pytest.raises(InvalidInput, match="its workspaces with it"):
        slice_set_end(slice_=young, ends_at=ends_at + DAY, actor=stage.admin, now=stage.now)
    slice_set_end(slice_=young, ends_at=None, actor=stage.admin, now=stage.now)
    assert [slice_.ends_at for slice_ in map(again, (stage.slice, short, young))] == [ends_at, stage.now + 5 * DAY, ends_at]

    project_set_end(project=project, ends_at=ends_at + DAY, actor=stage.admin, now=stage.now)
    assert [slice_.ends_at for slice_ in map(again, (stage.slice, short))] == [ends_at + DAY, stage.now + 5 * DAY]
    stage.slice.refresh_from_db()
    with pytest.raises(OverPolicy):
        stage.submit(duration_s=22 * 86_400)

    allocator.tick(now=stage.watched(21 * 86_400))
    project.refresh_from_db()
    assert [row.life for row in (project, *map(again, (stage.slice, short, young)))] == [Life.ARCHIVED] * 4
    project_restore(project=project, actor=stage.admin, now=stage.now)
    assert (project.ends_at, again(young).life, again(young).ends_at) == (None, Life.OPEN, None)


def again(slice_: Slice) -> Slice:
    return Slice.objects.get(pk=slice_.pk)

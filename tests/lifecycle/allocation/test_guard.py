"""An object that raises is set aside and reported once; the others go on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gpr.allocation import advance, allocator
from gpr.models import Gpr, GprState
from gpr.requests import ending
from inventory.models import StepResult
from inventory.services import events, sync
from journal.models import Event
from protocol.assignments import Phase
from tests.builders import make_slice
from tests.inventory.agent import seen, step
from tests.lifecycle.stage import ENTRY, EXIT, Stage, fresh

pytestmark = pytest.mark.django_db

S = GprState


class Planted(Exception):
    """It stands for a fault of EGS itself."""


@pytest.fixture
def stage() -> Stage:
    return Stage(nodes=2)


def pair(stage: Stage) -> tuple[Gpr, Gpr]:
    bad, good = (stage.submit(make_slice(stage.cluster, owner=stage.owner), name=name, duration_s=600) for name in ("bad", "good"))
    return bad, good


def plant(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, is_bad: Callable[..., bool]) -> None:
    service = getattr(module, name)

    def planted(*args: Any, **named: Any) -> Any:
        if is_bad(*args, **named):
            raise Planted
        return service(*args, **named)

    monkeypatch.setattr(module, name, planted)


def told() -> list[tuple[str, str, Any, Any]]:
    return list(Event.objects.filter(kind="egs.fault").values_list("severity", "reason", "gpr_id", "slice_id"))


def states(*gprs: Gpr) -> list[str]:
    return [fresh(gpr).state for gpr in gprs]


def test_a_start_that_raises_stops_no_other_and_administrators_are_told_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    plant(monkeypatch, allocator, "gprs_start", lambda slots, **_: bad in slots)

    reports = [stage.tick(), stage.tick()]

    assert states(bad, good) == [S.QUEUED, S.PROVISIONING]
    assert told() == [("error", "gpr_start", bad.pk, None)]
    assert [report.skipped for report in reports] == [{bad.pk: "internal error"}] * 2


@pytest.mark.both_databases
def test_an_activation_that_raises_stops_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    stage.tick()
    for gpr in (bad, good):
        stage.say(gpr, *ENTRY)
    plant(monkeypatch, advance, "reservations_set_windows", lambda windows: any(window.gpr_id == bad.pk for window in windows))

    stage.tick()
    stage.tick()

    assert states(bad, good) == [S.PROVISIONING, S.ACTIVE]
    assert told() == [("error", "gpr_advance", bad.pk, None)]


def test_an_end_that_raises_stops_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    stage.tick()
    for gpr in (bad, good):
        stage.say(gpr, *ENTRY)
    stage.tick()
    plant(monkeypatch, advance, "exits_begin", lambda ends, **_: any(end.gpr == bad for end in ends))

    stage.after(700)
    stage.tick()
    stage.tick()

    assert states(bad, good) == [S.ACTIVE, S.EXITING]
    assert told() == [("error", "gpr_advance", bad.pk, None)]


@pytest.mark.both_databases
def test_a_box_that_cannot_be_settled_stops_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    stage.tick()
    for gpr in (bad, good):
        stage.say(gpr, *ENTRY, *EXIT)
    plant(monkeypatch, ending, "goes_back", lambda gpr: gpr == bad)

    stage.after(700)
    stage.tick()
    stage.tick()

    assert states(bad, good) == [S.EXITING, S.COMPLETED]
    assert told() == [("error", "gpr_advance", bad.pk, None)]


def test_an_event_of_an_agent_that_raises_counts_as_heard_and_stops_none_behind_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    stage.tick()
    (bad_row,), (good_row,) = stage.held(bad), stage.held(good)
    plant(monkeypatch, events, "events_record", lambda told: any(event.gpr_id == bad.pk for event in told))

    reply = stage.agent.events(step(bad_row, 1), step(good_row, 2), at=stage.now)

    assert (reply.stored_seq, reply.stale) == (2, ())
    assert list(StepResult.objects.values_list("reservation", flat=True)) == [good_row.pk]
    assert told() == [("error", "agent_event_store", None, None)]


def test_what_an_agent_sees_of_one_node_is_stored_where_that_raises_for_another(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    stage.tick()
    (bad_row,), (good_row,) = stage.held(bad), stage.held(good)
    plant(monkeypatch, sync, "reservations_observe", lambda words, now: any(word.reservation == bad_row for word in words))

    stage.agent.sync(seen(bad_row, Phase.ENTERING), seen(good_row, Phase.ENTERING), at=stage.now)

    for row in (bad_row, good_row):
        row.refresh_from_db()
    assert (bad_row.phase, good_row.phase) == (Phase.PENDING, Phase.ENTERING)
    assert told() == [("error", "observation_store", bad.pk, None)]


def test_an_assignment_that_cannot_be_told_is_left_out_and_the_others_are_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = pair(stage)
    stage.tick()
    plant(monkeypatch, sync, "_assignment", lambda box, gpus, checks: box.gpr_id == bad.pk)

    replies = [stage.agent.sync(at=stage.now) for _ in range(2)]

    assert [assignment.gpr_id for assignment in replies[0].assignments or ()] == [str(good.pk)]
    assert told() == [("error", "assignment_tell", bad.pk, None)]

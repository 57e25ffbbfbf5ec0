"""A plan that is not whole: nobody is told that it was his own edit, administrators are told that it was ours, and once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpr.models import GprState, Promise, PromiseMove
from journal.models import Event
from planner import engine
from planner.board.board import Board
from tests.builders import make_slice
from tests.lifecycle.stage import Stage, fresh

pytestmark = pytest.mark.django_db


def test_a_promise_that_the_planner_breaks_is_recorded_as_its_fault_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=3600)
    waits, other = (stage.submit(make_slice(stage.cluster, owner=stage.owner), name=name) for name in ("waits", "other"))
    stage.tick()
    promised_at = Promise.objects.get(gpr=waits).promised_start_at
    make_evictions = engine.make_evictions

    def wrong(board: Board, *given: Any) -> Any:
        """Plans as if some pass had put it off for a day, and for another at the next tick."""
        answer, waiting = make_evictions(board, *given), board.queue[str(waits.pk)]
        box = board.box(waiting)
        board.remove_slot(waiting)
        board.place(waiting, box.start_s + 86_400, box.places)
        return answer

    monkeypatch.setattr(engine, "make_evictions", wrong)
    for _ in range(2):
        stage.after(1)
        stage.tick()

    (event,) = Event.objects.filter(kind="planner.fault")
    assert (event.severity, event.reason, event.gpr_id, event.slice_id) == ("error", "late", waits.pk, None)
    assert [move.cause for move in PromiseMove.objects.filter(gpr=waits)] == ["fault", "fault"]
    assert Promise.objects.get(gpr=waits).promised_start_at == promised_at + timedelta(days=2)
    assert fresh(other).state == GprState.QUEUED
    assert not PromiseMove.objects.filter(gpr=other).exists()

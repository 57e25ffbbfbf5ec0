"""The agent's document may not grow beyond what a cluster stores in one object, however much was measured while the hub was away."""

from __future__ import annotations

import msgspec

from protocol.agents.events import Outcome, StepEvent
from protocol.nodes.checks import CheckResult, Verdict
from worker_agent.boxes.state import RESULTS_KEPT, State, StateStore
from worker_agent.cluster.base import StateDoc


class Shelf:
    """It keeps one document."""

    def __init__(self) -> None:
        self.doc: StateDoc | None = None

    def load_state(self) -> StateDoc | None:
        return self.doc

    def save_state(self, body: bytes, version: str) -> str:
        self.doc = StateDoc(body=body, version=str(int(version or 0) + 1))
        return self.doc.version


def event(seq: int, count: int) -> StepEvent:
    results = tuple(CheckResult(check="gpu_temperature", verdict=Verdict.PASS, gpu=f"GPU-{n}", value=31.0) for n in range(count))
    about = {
        "assignment_id": "a",
        "epoch": 1,
        "step": "gpu_health",
        "attempt": seq,
        "outcome": Outcome.OK,
        "started_s": 0.0,
        "ended_s": 1.0,
    }
    return StepEvent(seq=seq, results=results, **about)  # type: ignore[arg-type]


def test_the_newest_measurements_survive_a_restart_and_every_event_does() -> None:
    shelf = Shelf()
    memory = StateStore(shelf, note=lambda *_: None)  # type: ignore[arg-type]
    count = RESULTS_KEPT // 2
    memory.state.events = [event(seq, count) for seq in (1, 2, 3)]

    assert memory.save()

    assert shelf.doc is not None
    kept = msgspec.json.decode(shelf.doc.body, type=State).events
    assert [(each.seq, len(each.results)) for each in kept] == [(1, 0), (2, count), (3, count)]
    assert [len(each.results) for each in memory.state.events] == [count] * 3

"""Kill -9 of hub or agent at any moment of a provisioning: it goes on, nothing is reserved twice, the exit is on time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import ENDED, nothing_was_held_twice, reservations_of
from tests.e2e.processes import Api, Stage, wait_for

# On the two other days: test_production.py and test_outages.py, where processes are killed too; each day: tests/agent/boxes/test_crashes.py
pytestmark = [pytest.mark.sqlite_only, pytest.mark.rotates(2)]

DURATION_S = 6
LIFE_S = 9.0  # with entry and exit
AGENT_START_S = 3.0
SLICES = ("one", "two", "three")
EXIT_LATE_S = 2.0  # design: exit begins within 2 s of the end
HEAL_S = 90.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.stop()


MIXED = ("agent hub", 1)
MORE = [(" ".join(4 * [victim]), seed) for victim in ("hub", "agent") for seed in range(1, 8)]


@pytest.mark.parametrize(("blows", "seed"), [MIXED, *(pytest.param(*each, marks=pytest.mark.soak) for each in MORE)])
def test_a_provisioning_survives_kill_9_at_any_moment(blows: str, seed: int, stage: Stage) -> None:
    api = stage.start()
    targets = {"hub": stage.hub, "agent": stage.join(api, "c1")}
    _tenants(api)
    rng = random.Random(seed)
    gprs = [_request(api, name) for name in SLICES]
    away: list[tuple[datetime, datetime]] = []

    # The blows fall all over the whole life; while the agent is down, no one can exit.
    victims = blows.split()
    for victim in victims:
        time.sleep(rng.uniform(0.1, LIFE_S / len(victims)))
        targets[victim].kill()
        killed_at = datetime.now(UTC)
        time.sleep(rng.uniform(0.1, 1.0))
        targets[victim].start()
        if victim == "agent":
            away.append((killed_at, datetime.now(UTC) + timedelta(seconds=AGENT_START_S)))

    for gpr in gprs:
        ended = wait_for(f"the end of {gpr['name']}", partial(_ended, api, gpr["id"]), within_s=HEAL_S)
        assert ended["state"] == "COMPLETED", ended
        began_at = max(datetime.fromisoformat(row["exit_began_at"]) for row in reservations_of(api, gpr["id"]))
        late_s = (began_at - _due_at(datetime.fromisoformat(ended["ends_at"]), away)).total_seconds()
        assert late_s <= EXIT_LATE_S, f"{gpr['name']} left {late_s} s late"
    nothing_was_held_twice(api)


def _due_at(ends_at: datetime, away: list[tuple[datetime, datetime]]) -> datetime:
    """An agent that was down at the end begins the exit as soon as it is back."""
    last_at = ends_at + timedelta(seconds=EXIT_LATE_S)
    return max([ends_at, *(back_at for killed_at, back_at in away if killed_at < last_at)])


def _tenants(api: Api) -> None:
    api.post("/projects/", {"name": "p"})
    for name in SLICES:
        api.post("/slices/", {"name": name, "project": "p", "clusters": ["c1"]})


def _request(api: Api, slice_: str) -> dict[str, Any]:
    ask = {"name": slice_, "slice": slice_, "shape": "H100-80GB", "nodes": 1, "gpus_per_node": 4, "duration_s": DURATION_S}
    gpr: dict[str, Any] = api.post("/gprs/", ask)
    return gpr


def _ended(api: Api, gpr_id: str) -> dict[str, Any] | None:
    gpr: dict[str, Any] | None = api.try_get(f"/gprs/{gpr_id}/")
    return gpr if gpr is not None and gpr["state"] in ENDED else None

"""Many requests of few workspaces, which run one box at a time each, below limits of their projects: who is looked at again, and when."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpr.planner.engine import plan
from gpr.planner.snapshot import Quota, Request, Snapshot
from tests.planner.build import GENEROUS, pool, request, settled, starts
from tests.planner.draw import GUARDED
from tests.planner.oracle import problems

LONG = 130  # more than the planner reads at once


def crowd(seed: int) -> Snapshot:
    """Room for nearly all, if it were not for their workspaces and projects."""
    dice = random.Random(seed)
    slice_count, pools = dice.randint(1, 6), (pool(dice.randint(2, 10), 4), pool(dice.randint(0, 4), 4, id="q"))
    most = {"x": (None, 8, 12), "y": (None, 4, 20), "s0": (None, None, 4)}
    quotas = tuple(Quota(owner, f"shape-{id_}", 0, dice.choice(of)) for owner, of in most.items() for id_ in "pq")
    queue = tuple(_one_of(dice, number, slice_count) for number in range(dice.choice([10, 20, 30, LONG])))
    return Snapshot(0, pools, queue=queue, quotas=quotas, policy=dice.choice(GUARDED), memory=GENEROUS)


def _one_of(dice: random.Random, number: int, slice_count: int) -> Request:
    owner = dice.randrange(slice_count)
    asked = request(
        f"r{number}",
        slice=f"s{owner}",
        project="xy"[owner % 2],
        count=dice.choice([1, 1, 1, 2, 3]),
        gpus=dice.choice([0, 1, 2]),
        length=dice.randint(1, 20),
        priority=dice.choice([101, 101, 201]),
        pools=dice.choice([("p",), ("p",), ("p", "q")]),
        earliest=dice.choice([0, 0, 0, 9]),
    )
    return replace(asked, handicaps=((dice.choice("pq"), dice.choice([0, 5, 20])),))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_start_that_is_shown_is_the_start_that_happens_where_limits_decide_it(seed: int) -> None:
    snapshot = crowd(seed)
    shown = {id_: start_s for id_, start_s in starts(plan(snapshot)).items() if start_s is not None}
    began_s: dict[str, int] = {}

    while True:
        made = plan(snapshot)
        assert problems(snapshot, made) == []
        began_s |= {placement.id: snapshot.now_s for placement in made.starts}
        snapshot = settled(snapshot)
        if not any(waits.slot for waits in snapshot.queue):
            break
        now_s = _next_s(snapshot)
        snapshot = replace(snapshot, now_s=now_s, running=tuple(box for box in snapshot.running if box.end_s > now_s))

    assert began_s == shown


def _next_s(snapshot: Snapshot) -> int:
    """When next a box ends, a slot comes due or a request may begin: nothing can start in between."""
    times_s = [box.end_s for box in snapshot.running] + [waits.earliest_start_s for waits in snapshot.queue]
    times_s += [waits.slot.start_s for waits in snapshot.queue if waits.slot]
    return min(time_s for time_s in times_s if time_s > snapshot.now_s)

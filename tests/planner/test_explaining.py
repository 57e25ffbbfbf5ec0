"""An explanation names the right boxes as data, and tells no secrets in its sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from planner.engine import plan
from planner.explain import sentence
from planner.plan import Blocker, Explanation, Reason
from planner.snapshot import Request, Running, Snapshot, Window
from tests.effort import examples
from tests.planner.build import placements, pool, request, running, settled, starts, waiting
from tests.planner.draw import snapshots


def why(id: str, *queue: Request, busy: tuple[Running, ...] = (), nodes: int = 1, closed: int = 0) -> Explanation:
    windows = {i: (Window(1000, 1900),) for i in range(closed)}
    return placements(plan(Snapshot(1000, (pool(nodes, closed=windows),), busy, queue)))[id].explanation


def holds(id: str, until: int, *, nodes: int = 1, gpus: int = 0) -> Blocker:
    return Blocker(id, True, until, node_count=nodes, gpus_per_node=gpus)


def wants(id: str, until: int, *, nodes: int = 1, gpus: int = 0) -> Blocker:
    return replace(holds(id, until, nodes=nodes, gpus=gpus), is_running=False)


def test_it_names_the_box_that_runs_on_its_node_until_it_starts() -> None:
    explanation = why("a", request("a"), busy=(running("r", "p0", end=1300), running("other", "p1", end=1400)), nodes=2)

    assert explanation == Explanation(Reason.WAITS_FOR_GPUS, (holds("r", 1300),))


def test_it_names_the_request_before_it_and_how_many_are_ahead() -> None:
    explanation = why("c3", request("a1"), request("b2"), request("c3"), request("d4"), busy=(running("r", "p0", end=1300),))

    assert explanation == Explanation(Reason.WAITS_FOR_GPUS, (wants("b2", 1500),), ahead_count=2)


def test_who_starts_now_is_not_ahead_of_anybody() -> None:
    assert why("b2", request("a1"), request("b2")) == Explanation(Reason.WAITS_FOR_GPUS, (wants("a1", 1100),))


def test_on_a_shared_node_only_the_box_whose_gpus_it_lacks_is_named() -> None:
    busy = (running("small", "p0", end=1200, gpus=1), running("large", "p0", end=1300, gpus=5))

    assert why("a", request("a", gpus=4), busy=busy).blockers == (holds("large", 1300, gpus=5),)


def test_a_gang_names_what_holds_each_of_its_nodes_last_first_and_five_at_most() -> None:
    busy = tuple(running(f"r{i}", f"p{i}", end=1100 + 10 * i) for i in range(7))

    blockers = why("gang", request("gang", count=7), busy=busy, nodes=7).blockers

    assert [blocker.id for blocker in blockers] == ["r6", "r5", "r4", "r3", "r2"]


def test_whoever_made_room_last_on_a_node_is_named_also_where_there_was_enough() -> None:
    busy = (running("r", "p0", end=1300), running("part", "p1", end=1200, gpus=4))

    assert [b.id for b in why("gang", request("gang", count=2, gpus=4), busy=busy, nodes=2).blockers] == ["r", "part"]


def test_a_node_that_is_free_already_holds_nobody_up() -> None:
    busy = (running("r", "p0", end=1300),)

    assert [b.id for b in why("gang", request("gang", count=2, gpus=4), busy=busy, nodes=2).blockers] == ["r"]


def test_guarded_who_is_expected_to_overtake_is_named_not_the_slots_that_nobody_will_need() -> None:
    """The long one is expected at 1300, once the short one is done, and not where its own slot is."""
    snapshot = Snapshot(1000, (pool(1),), (running("r", "p0", end=1200),), (waiting("long1", 1600, "p0", length=500), request("short2")))

    explanation = placements(plan(snapshot))["long1"].explanation

    assert explanation == Explanation(Reason.WAITS_FOR_GPUS, (wants("short2", 1300),), ahead_count=1)


def test_guarded_who_has_no_room_before_a_slot_waits_for_its_owner() -> None:
    """Nobody is on the node until 1150, but the box is longer than that."""
    snapshot = Snapshot(
        1000, (pool(2),), (running("r", "p1", end=1150),), (waiting("wide1", 1150, "p0", "p1"), request("long2", length=250))
    )

    explanation = placements(plan(snapshot))["long2"].explanation

    assert explanation == Explanation(Reason.WAITS_FOR_GPUS, (wants("wide1", 1250, nodes=2),), ahead_count=1)


def test_it_waits_for_its_own_slice_when_that_is_what_ends_last() -> None:
    busy = (running("r", "p0", end=1300, slice="s"),)

    explanation = why("a", request("a", slice="s"), busy=busy, nodes=2)

    assert explanation == Explanation(Reason.WAITS_FOR_SLICE, (holds("r", 1300),))


def test_it_waits_for_the_time_that_was_asked_for() -> None:
    assert why("a", request("a", earliest=1200)) == Explanation(Reason.WAITS_FOR_START_TIME)


def test_it_waits_for_nodes_that_are_closed() -> None:
    assert why("a", request("a"), closed=1) == Explanation(Reason.WAITS_FOR_NODES)
    assert why("a", request("a", count=2), busy=(running("r", "p1", end=1800),), nodes=2, closed=1).reason is (Reason.WAITS_FOR_NODES)
    assert why("a", request("a", count=2), busy=(running("r", "p1", end=2000),), nodes=2, closed=1).reason is (Reason.WAITS_FOR_GPUS)


def test_an_overdue_box_is_named_as_such() -> None:
    assert why("a", request("a"), busy=(running("r", "p0", end=990),)).blockers == (replace(holds("r", 1050), is_overdue=True),)


@examples(300)
@given(snapshots())
def test_without_its_blockers_a_request_would_start_sooner(snapshot: Snapshot) -> None:
    """One that waits for running boxes alone, not for closed nodes or its slice too, is sooner without them."""
    pools = tuple(replace(p, nodes=tuple(replace(n, closed=()) for n in p.nodes)) for p in snapshot.pools)
    queue = tuple(replace(request, slice=request.id) for request in snapshot.queue)
    before = settled(replace(snapshot, pools=pools, queue=queue))
    made = plan(before)
    for placement in made.placements:
        names = {blocker.id for blocker in placement.explanation.blockers}
        assert len(names) <= 5
        if placement.explanation.reason is Reason.WAITS_FOR_GPUS:
            assert names
            assert all(before.now_s < b.until_s <= (starts(made)[placement.id] or 0) for b in placement.explanation.blockers)
        if names and all(blocker.is_running for blocker in placement.explanation.blockers):
            alone = tuple(request for request in before.queue if request.id == placement.id)
            gone = tuple(box for box in before.running if box.id not in names)
            sooner = starts(plan(replace(before, running=gone, queue=alone)))[placement.id]
            assert sooner is not None
            assert sooner < (starts(made)[placement.id] or 0)


NEVER = "It can never start, and nothing is promised to it: by the nodes that there are, how near each other they are to be, and what its "
NEVER += "workspace and project may hold, "
NAMES = {"mine": "train-7", "also mine": "eval-2"}


@pytest.mark.parametrize(
    ("explanation", "text"),
    [
        (Explanation(Reason.STARTS_NOW), "It starts now."),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (Blocker("mine", True, 8560),), 7),
            "It waits for the GPUs of train-7 (its nodes come free in 2 h 6 min, at 8560).",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (Blocker("x", True, 99), Blocker("also mine", False, 1090), Blocker("y", True, 8)), 9),
            "It waits for the GPUs of eval-2 (ahead of it, ends in 1 min 30 s, at 1090) and another workspace's request.",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (holds("mine", 1060), holds("x", 1060, nodes=7))),
            "It waits for the GPUs of train-7 (its node comes free in 1 min, at 1060) and another workspace's request.",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (holds("mine", 1060, nodes=3), wants("also mine", 1120, nodes=2))),
            "It waits for the GPUs of train-7 (its 3 nodes come free in 1 min, at 1060)"
            " and eval-2 (ahead of it, 2 nodes, ends in 2 min, at 1120).",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (holds("mine", 1060, nodes=2, gpus=4), wants("also mine", 1120, gpus=4))),
            "It waits for the GPUs of train-7 (its 2 × 4 GPUs come free in 1 min, at 1060)"
            " and eval-2 (ahead of it, 4 GPUs, ends in 2 min, at 1120).",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (holds("mine", 1060, gpus=1), wants("also mine", 1120, gpus=1, nodes=2))),
            "It waits for the GPUs of train-7 (its 1 GPU comes free in 1 min, at 1060)"
            " and eval-2 (ahead of it, 2 × 1 GPU, ends in 2 min, at 1120).",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (Blocker("x", False, 5000),), 12),
            "It waits for the GPUs of another workspace's request.",
        ),
        (Explanation(Reason.WAITS_FOR_GPUS), "It waits for GPUs to come free."),
        (
            Explanation(Reason.WAITS_FOR_SLICE, (Blocker("mine", True, 1000),)),
            "It waits for train-7 (its nodes come free in 0 s, at 1000): its workspace runs one request at a time.",
        ),
        (
            Explanation(Reason.WAITS_FOR_SLICE, (Blocker("x", True, 5000),)),
            "It waits for an earlier request of its own workspace, which runs one at a time.",
        ),
        (Explanation(Reason.WAITS_FOR_START_TIME), "It waits for the start time that was asked for."),
        (
            Explanation(Reason.WAITS_FOR_NODES),
            "It waits for nodes on which nothing can start now: set aside, not ready, or in a cluster that is disabled or not heard. "
            "EGS does not know when they come back and assumes a time.",
        ),
        (
            Explanation(Reason.WAITS_FOR_GPUS, (Blocker("mine", True, 1060, is_overdue=True),)),
            "It waits for the GPUs of train-7 (its time is over, but its nodes are not back yet).",
        ),
        (
            Explanation(Reason.NODES_NOT_BACK),
            "Its time is over, but its nodes are not back yet. If its agent is gone, an administrator can free them by force.",
        ),
        (
            Explanation(Reason.NEVER_FITS, most_node_count=3, most_gpus_per_node=8),
            f"{NEVER}it could have at most 3 nodes with 8 GPUs each.",
        ),
        (Explanation(Reason.NEVER_FITS, most_node_count=1, most_gpus_per_node=1), f"{NEVER}it could have at most 1 node with 1 GPU."),
        (
            Explanation(Reason.NEVER_FITS),
            "It can never start, and nothing is promised to it: there are no GPU nodes that it may use, "
            "or its workspace or project may hold none.",
        ),
    ],
)
def test_a_sentence_names_what_the_reader_may_see_and_nothing_else(explanation: Explanation, text: str) -> None:
    assert sentence(explanation, now_s=1000, name_of=NAMES.get, say_at=str) == text


def test_a_sentence_does_not_tell_how_many_others_there_are_or_until_when() -> None:
    texts = {
        sentence(
            Explanation(Reason.WAITS_FOR_GPUS, tuple(Blocker(f"x{i}", bool(i % 2), 1000 + i, False, i + 1, i) for i in range(n)), ahead),
            now_s=1000,
            name_of=NAMES.get,
            say_at=str,
        )
        for n, ahead in ((1, 0), (2, 5), (5, 99))
    }

    assert len(texts) == 1

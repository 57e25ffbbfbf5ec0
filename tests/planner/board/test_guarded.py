"""Guarded shortest-first: whoever is first in turn may start at any moment at which its whole box fits beside everybody's slot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan
from planner.snapshot import Arrival, Memory, PlanPolicy, PolicyName, Request, Running, SlackSettings, Snapshot, Window
from tests.effort import examples
from tests.planner.build import (
    GENEROUS,
    GUARDED,
    placements,
    pool,
    request,
    run,
    running,
    settled,
    slots,
    stand,
    starts,
    stored,
    waiting,
)
from tests.planner.draw import GUARDED as DRAWN
from tests.planner.draw import ROOMY, requests, snapshots
from tests.planner.oracle import Oracle, of_slot

# Half of a box's length as slack, for those who have to wait.
HALF = PlanPolicy(slack=SlackSettings(of_length=0.5, most_of_patient=100.0, most_of_strict=100.0))


def turn(snapshot: Snapshot, one: Request) -> tuple[int, int, int, int, str]:
    """Orders by higher priority, then by the smaller share, by fewer GPU-seconds, and by who came first."""
    largest = max((node.gpu_count for p in snapshot.pools if p.id in one.pools for node in p.nodes), default=0)
    gpu_s = one.node_count * (one.gpus_per_node or largest) * one.length_s
    return -one.priority, one.share, gpu_s, one.rank, one.id


def by_the_rule(snapshot: Snapshot, *, least_priority: int = 0) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Finds by brute force who starts now and where: those who are due; then again and again the first in turn that fits beside all slots.

    All have slots that can be kept. Those below `least_priority` keep theirs, and do not start.
    """
    started: dict[str, tuple[str, tuple[str, ...]]] = {}
    left = sorted((one for one in snapshot.queue if one.priority >= least_priority), key=lambda one: turn(snapshot, one))
    boxes = {w.id: of_slot(w, w.slot) for w in snapshot.queue if w.slot}
    for due in [w for w in left if w.slot and w.slot.start_s == snapshot.now_s]:
        assert due.slot is not None
        started[due.id] = due.slot.pool, due.slot.nodes
        left.remove(due)
    goes_on = True
    while goes_on:
        goes_on = False
        for one in left:
            oracle = Oracle(snapshot, (box for id_, box in boxes.items() if id_ != one.id))
            found = oracle.at(one, snapshot.now_s)
            if found is not None:
                started[one.id] = found.pool, found.nodes
                boxes[one.id] = of_slot(one, found)
                left.remove(one)
                goes_on = True  # whoever is before it in turn may fit where its slot was
                break
    return started


def late_in(snapshot: Snapshot, slacks: Iterable[int]) -> Snapshot:
    """All slots as late as these slacks put them: each request is given the first place after its own, in order of rank."""
    made = replace(snapshot, queue=())
    for one, slack_s in zip(snapshot.queue, slacks, strict=True):
        slot = Oracle(made, (of_slot(w, w.slot) for w in made.queue if w.slot)).earliest(one, slack_s)
        if slot is not None:
            made = replace(made, queue=(*made.queue, replace(one, slot=slot, promise_s=slot.start_s)))
    return made


@examples(400)
@given(snapshots(policies=DRAWN), st.lists(st.sampled_from([0, 0, 2, 5, 11]), min_size=5, max_size=5))
def test_who_starts_now_and_where_is_what_the_rule_says(snapshot: Snapshot, slacks: list[int]) -> None:
    before = late_in(snapshot, slacks[: len(snapshot.queue)])

    made = plan(before)

    assert {p.id: (p.slot.pool, p.slot.nodes) for p in made.starts if p.slot} == by_the_rule(before)
    assert {p.id: p.slot for p in made.placements if not p.starts_now} == {
        w.id: w.slot for w in before.queue if w.id not in {p.id for p in made.starts}
    }


@examples(400)
@given(
    snapshots(policies=DRAWN),
    st.lists(st.sampled_from([0, 0, 2, 5, 11]), min_size=5, max_size=5),
    st.sampled_from([101, 201]),
)
def test_no_lower_one_takes_what_a_higher_one_could_use_and_whoever_starts_before_it_delays_nobody_above(
    snapshot: Snapshot, slacks: list[int], priority: int
) -> None:
    """This proves I10.

    A request of this priority or above that could start now without those below it starts now, in that place; the others keep their slots.
    """
    before = late_in(snapshot, slacks[: len(snapshot.queue)])

    made = plan(before)

    starting = {p.id: (p.slot.pool, p.slot.nodes) for p in made.starts if p.slot}
    assert by_the_rule(before, least_priority=priority).items() <= starting.items()
    above = [one for one in before.queue if one.priority >= priority and one.id not in starting]
    assert {one.id: placements(made)[one.id].slot for one in above} == {one.id: one.slot for one in above}


@pytest.mark.parametrize("policy", [GUARDED, HALF])
def test_of_newcomers_in_one_plan_the_higher_is_placed_first_wherever_it_is_listed(policy: PlanPolicy) -> None:
    queue = (request("low1", priority=50), request("higher2", priority=60), request("highest3", priority=201))

    made = plan(Snapshot(1000, (pool(1),), queue=queue, policy=policy))

    assert slots(made) == {"highest3": 1000, "higher2": 1100, "low1": 1200}


@examples(400)
@given(snapshots(policies=DRAWN), st.lists(st.sampled_from([0, 0, 2, 5, 11]), min_size=5, max_size=5))
def test_what_is_expected_is_what_the_rule_then_does_second_by_second(snapshot: Snapshot, slacks: list[int]) -> None:
    before = late_in(
        replace(snapshot, running=tuple(b for b in snapshot.running if b.end_s > snapshot.now_s)), slacks[: len(snapshot.queue)]
    )
    told = starts(plan(before))

    came: dict[str, int | None] = {}
    world = before
    while world.queue:
        going = by_the_rule(world)
        came |= dict.fromkeys(going, world.now_s)
        begun = [run_at(w, *going[w.id], world.now_s) for w in world.queue if w.id in going]
        running = tuple(box for box in (*world.running, *begun) if box.end_s > world.now_s + 1)
        world = replace(world, now_s=world.now_s + 1, running=running, queue=tuple(w for w in world.queue if w.id not in going))

    assert told == came


def run_at(started: Request, pool_id: str, nodes: tuple[str, ...], now_s: int) -> Running:
    return run(replace(started, slot=stand(now_s, *nodes, pool=pool_id)))


def test_a_gang_is_expected_when_one_more_node_joins_those_where_only_its_own_slot_is_in_the_way() -> None:
    nodes = pool(3, closed={0: (Window(1500, 1600),), 2: (Window(1000, 1200),)})
    busy = (running("r", "p0", end=1100), running("s", "p1", end=1500, gpus=4))
    gang = waiting("gang1", 1450, "p1", "p2", gpus=4, length=400)

    assert starts(plan(Snapshot(1000, (nodes,), busy, (gang,), policy=GUARDED))) == {"gang1": 1100}


def test_a_short_one_overtakes_whoever_has_slack() -> None:
    """The long one is promised half its length more than it must wait, and lets the short one go first."""
    busy = (running("r", "p0", end=1100),)
    snapshot = settled(Snapshot(1000, (pool(1),), busy, (request("long1", length=1000),), policy=HALF, memory=GENEROUS))
    assert slots(plan(snapshot)) == {"long1": 1600}
    assert starts(plan(snapshot)) == {"long1": 1100}

    made = plan(replace(snapshot, queue=(*snapshot.queue, request("short2", length=200))))

    assert starts(made) == {"short2": 1100, "long1": 1300}
    assert slots(made)["long1"] == 1600


def test_nobody_overtakes_for_so_long_that_a_promise_breaks() -> None:
    queue = [waiting("long1", 1600, "p0", length=1000), *(request(f"s{i}", length=200) for i in range(2, 7))]

    made = plan(Snapshot(1000, (pool(1),), (running("r", "p0", end=1100),), tuple(queue), policy=GUARDED))

    assert starts(made) == {"s2": 1100, "s3": 1300, "long1": 1500, "s4": 2500, "s5": 2700, "s6": 2900}
    assert slots(made)["long1"] == 1600


def test_whoever_has_a_free_place_gets_no_slack() -> None:
    made = plan(Snapshot(1000, (pool(1),), queue=(request("a1", length=1000),), policy=HALF, memory=GENEROUS))

    assert placements(made)["a1"].promise_s == 1000


def test_slack_is_granted_only_as_far_as_promises_were_better_than_conservative_backfills() -> None:
    busy = (running("r", "p0", end=1100),)
    queue = (request("a1", length=1000),)

    def promised(memory: Memory) -> int | None:
        return plan(Snapshot(1000, (pool(1),), busy, queue, policy=HALF, memory=memory)).placements[0].promise_s

    assert promised(Memory()) == 1100
    assert promised(Memory(promised_s=1000, patient_s=1000, summed_at_s=1000)) == 1100
    assert promised(Memory(promised_s=2000, patient_s=1000, summed_at_s=1000)) == 1100
    assert promised(Memory(promised_s=975, patient_s=1000, summed_at_s=1000)) == 1100 + 250
    assert promised(Memory(promised_s=950, patient_s=1000, summed_at_s=1000)) == 1100 + 500
    assert promised(Memory(promised_s=0, patient_s=1000, summed_at_s=1000)) == 1100 + 500


@pytest.mark.parametrize(("gpus", "most"), [(4, "most_of_patient"), (8, "most_of_strict")])
def test_slack_ends_where_a_patient_queue_would_have_been_by_so_much(gpus: int, most: str) -> None:
    """Small boxes are measured by conservative backfill, those of eight GPUs and more by strict turn; here both start at 1200."""
    before = Snapshot(1000, (pool(1),), policy=PlanPolicy(slack=SlackSettings(of_length=9.0)), memory=GENEROUS)
    before = settled(replace(before, queue=(request("first0", length=200),)))
    shares = {"most_of_patient": 99.0, "most_of_strict": 99.0} | {most: 1.5}
    slack = SlackSettings(of_length=9.0, most_of_patient=shares["most_of_patient"], most_of_strict=shares["most_of_strict"])
    policy = PlanPolicy(slack=slack)

    made = plan(replace(before, queue=(request("a1", length=1000, gpus=gpus),), policy=policy))

    assert placements(made)["a1"].promise_s == 1000 + 300


def test_work_that_is_shorter_or_of_higher_priority_gives_slack_to_whom_it_will_overtake() -> None:
    """Half of all GPUs were kept busy by such: for each second of waiting one more comes in between, times `of_wait`."""
    day_s = 86_400
    busy = (running("r", "p0", end=day_s + 1000),)

    held = PlanPolicy(slack=SlackSettings(of_wait=0.7, busy_most=0.75, most_of_strict=1.45))
    free = PlanPolicy(slack=SlackSettings(of_wait=0.7, busy_most=0.75, most_of_strict=99.0))

    def promised(work: Arrival, policy: PlanPolicy) -> int:
        memory = Memory(arrivals=(work,))
        made = plan(Snapshot(day_s, (pool(1),), busy, (request("a1", length=1000),), policy=policy, memory=memory))
        return (made.placements[0].promise_s or 0) - day_s - 1000

    half = 8 * day_s // 2
    assert promised(Arrival(0, 101, half), free) == 0
    assert promised(Arrival(0, 50, 1), free) == 0
    assert promised(Arrival(0, 201, half), held) == 450
    assert promised(Arrival(0, 201, half), free) == 700
    assert promised(Arrival(0, 201, 100 * half), free) == 2100  # no busier than `busy_most`
    assert promised(Arrival(0, 201, half // 4, 3 * half // 4), free) == promised(Arrival(0, 201, half), free)
    assert promised(Arrival(-6 * day_s, 201, half), free) == 0  # forgotten


def test_without_slack_the_promise_is_the_earliest_start() -> None:
    policy = PlanPolicy(slack=SlackSettings(of_length=0, of_wait=0))
    queue = tuple(request(f"r{i}", length=100 + i, count=1 + i % 2) for i in range(6))

    guarded = plan(Snapshot(1000, (pool(2),), queue=queue, policy=policy))
    by_turn = tuple(replace(r, rank=[p.id for p in guarded.placements].index(r.id)) for r in queue)
    conservative = plan(Snapshot(1000, (pool(2),), queue=by_turn, policy=PlanPolicy(PolicyName.CONSERVATIVE)))

    assert {p.id: p.promise_s for p in guarded.placements} == {p.id: p.promise_s for p in conservative.placements}


def test_the_plan_tells_what_to_remember_only_where_somebody_is_new() -> None:
    snapshot = Snapshot(1000, (pool(1),), queue=(request("a1"), request("b2"), request("never3", gpus=9)), policy=HALF, memory=GENEROUS)
    first = plan(snapshot).remembered
    assert first is not None
    assert dict(first.arrivals) == {"a1": Arrival(1000, 101, 800), "b2": Arrival(1000, 101, 800)}
    assert {shadow.id for shadow in first.shadows} == {"b2"}  # a1 came when nobody waited, and starts
    assert first.summed_at_s == 1000

    assert plan(replace(snapshot, queue=stored(snapshot, plan(snapshot))[:2])).remembered is None


def test_of_those_who_all_start_at_once_nothing_is_to_be_remembered_but_their_work() -> None:
    """Otherwise each of thousands that fill an empty cluster would be looked at for as long as it runs."""
    queue = (request("a1"), request("b2", gpus=2), request("c3", count=2))

    remembered = plan(Snapshot(1000, (pool(4),), queue=queue, policy=HALF, memory=GENEROUS)).remembered

    assert remembered is not None
    assert {id_ for id_, _ in remembered.arrivals} == {"a1", "b2", "c3"}
    assert remembered.shadows == ()


def test_who_asks_for_a_later_start_does_not_make_the_patient_queue_forget_the_present() -> None:
    queue = (request("a1", length=50), request("b2", earliest=1400), request("c3", length=500))

    made = plan(Snapshot(1000, (pool(1),), (running("r", "p0", end=1300),), queue, policy=GUARDED))

    assert made.remembered is not None
    assert {shadow.id: shadow.patient.start_s for shadow in made.remembered.shadows} == {"a1": 1300, "b2": 1400, "c3": 1500}


@examples(300)
@given(snapshots(policies=DRAWN, most=7))
def test_what_is_remembered_stands_in_nobodys_way(snapshot: Snapshot) -> None:
    """Each kind of shadows is a feasible plan of its own, without limits, beside all of whom there is no shadow."""
    made = plan(snapshot)
    new = made.remembered
    if new is None:
        assert all(placement.promise_s is None for placement in made.placements)
        return
    by_id = {r.id: r for r in snapshot.queue}
    shadowless = [p for p in made.placements if p.promise_s is not None and p.id not in {shadow.id for shadow in new.shadows}]
    assert all(p.promise_s == max(snapshot.now_s, by_id[p.id].earliest_start_s) for p in shadowless)
    for name in ("patient", "strict"):
        oracle = Oracle(snapshot, (of_slot(by_id[p.id], p.slot) for p in shadowless if p.slot and p.slot.start_s == p.promise_s))
        for shadow in new.shadows:
            bare, slot = replace(by_id[shadow.id], slice=""), getattr(shadow, name)
            assert oracle.fits(bare, slot.nodes, slot.start_s)
            assert getattr(shadow, f"{name}_end_s") == slot.start_s + bare.length_s
            oracle.boxes.append(of_slot(bare, slot))
    strict = [shadow.strict.start_s for shadow in new.shadows]
    assert strict == sorted(strict)


@examples(100)
@given(snapshots(policies=(ROOMY,)), st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_a_slot_never_lies_before_a_promise_nor_behind_it_when_all_is_well(snapshot: Snapshot, gaps: list[int]) -> None:
    before = settled(replace(snapshot, running=()))
    for gap in gaps:
        before = settled(
            replace(before, now_s=before.now_s + gap, running=tuple(b for b in before.running if b.end_s > before.now_s + gap))
        )
        if any(w.slot is not None and w.slot.start_s < before.now_s for w in before.queue):
            return  # a tick came late
        assert all(w.slot is None or w.slot.start_s == w.promise_s for w in before.queue)


@examples(150)
@given(snapshots(policies=DRAWN), st.data())
def test_the_memory_is_about_newcomers_only(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    waiting_only = replace(before, queue=tuple(w for w in before.queue if w.slot))
    assert plan(replace(waiting_only, memory=Memory())) == plan(waiting_only)

    newcomer = data.draw(requests("new", 99))
    after = replace(before, queue=(*before.queue, newcomer))
    promises = {w.id: w.promise_s for w in before.queue}
    for memory in (before.memory, Memory()):
        made = plan(replace(after, memory=memory))
        assert {p.id: p.promise_s for p in made.placements if p.id != "new"} == promises

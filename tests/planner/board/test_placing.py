"""A newcomer gets the earliest place, on the nodes that leave most to others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.causes import Cause
from planner.engine import plan
from planner.feasibility import LargestRequest, largest_that_fits
from planner.plan import Placement, PromiseMove, Reason
from planner.snapshot import Node, PlanPolicy, Pool, Quota, Request, Snapshot, Window, Within
from tests.planner.build import CONSERVATIVE, EITHER, GUARDED, moves, placements, pool, request, running, settled, stand, starts, waiting


@EITHER
def test_an_empty_pool_gives_nodes_at_once(policy: PlanPolicy) -> None:
    made = plan(Snapshot(1000, (pool(2),), queue=(request("a", count=2),), policy=policy))

    (placement,) = made.starts
    assert placement.slot == stand(1000, "p0", "p1")
    assert placement.promise_s == 1000
    assert placement.explanation.reason is Reason.STARTS_NOW


@EITHER
def test_a_full_node_gives_its_gpus_when_its_box_ends(policy: PlanPolicy) -> None:
    made = plan(Snapshot(1000, (pool(1),), (running("r", "p0", end=1300),), (request("a"),), policy=policy))

    assert starts(made) == {"a": 1300}
    assert made.starts == ()


def test_a_short_request_slips_in_front_of_a_gang_that_waits() -> None:
    busy = (running("r", "p0", end=1300),)
    gang = request("gang1", count=2)
    before = settled(Snapshot(1000, (pool(2),), busy, (gang,), policy=CONSERVATIVE))

    made = plan(replace(before, queue=(*before.queue, request("short2", length=300), request("long3", length=301))))

    assert starts(made) == {"gang1": 1300, "short2": 1000, "long3": 1400}


def test_among_newcomers_higher_priority_goes_first_and_then_who_was_queued_first() -> None:
    queue = (request("a1", priority=50), request("b2"), request("c3"), request("d4", priority=201))

    made = plan(Snapshot(1000, (pool(1),), queue=queue, policy=CONSERVATIVE))

    assert starts(made) == {"d4": 1000, "b2": 1100, "c3": 1200, "a1": 1300}
    assert [placement.id for placement in made.placements] == ["d4", "b2", "c3", "a1"]


@EITHER
def test_a_higher_priority_that_comes_later_breaks_no_promise(policy: PlanPolicy) -> None:
    before = settled(Snapshot(1000, (pool(1),), (running("r", "p0", end=1300),), (request("low1", priority=1),), policy=policy))

    made = plan(replace(before, queue=(*before.queue, request("high2", priority=300))))

    assert starts(made) == {"low1": 1300, "high2": 1400}


@EITHER
def test_parts_of_nodes_are_packed_so_that_whole_nodes_stay_whole(policy: PlanPolicy) -> None:
    busy = (running("r", "p1", end=5000, gpus=6),)

    made = plan(Snapshot(1000, (pool(3),), busy, (request("part1", gpus=2), request("whole2", count=2)), policy=policy))

    assert placements(made)["part1"].slot == stand(1000, "p1")
    assert placements(made)["whole2"].slot == stand(1000, "p0", "p2")


@EITHER
def test_of_nodes_with_as_much_left_over_the_one_with_the_shorter_gap_is_taken(policy: PlanPolicy) -> None:
    closed = {0: (Window(2000, 3000),), 1: (Window(1500, 3000),)}

    made = plan(Snapshot(1000, (pool(2, closed=closed),), queue=(request("a", length=400),), policy=policy))

    assert placements(made)["a"].slot == stand(1000, "p1")


@pytest.mark.parametrize("gpus", [0, 8])
def test_a_whole_node_is_never_shared(gpus: int) -> None:
    busy = (running("r", "p0", end=1300, gpus=1),)

    made = plan(Snapshot(1000, (pool(1),), busy, (request("whole1", gpus=gpus), request("part2", gpus=1, length=301)), policy=CONSERVATIVE))

    assert starts(made) == {"whole1": 1300, "part2": 1400}


@EITHER
def test_all_gpus_of_each_node_is_what_each_node_has(policy: PlanPolicy) -> None:
    mixed = Pool("p", "c", "s", (Node("small", 4), Node("large", 8)))
    busy = (running("r", "large", end=1300, gpus=1),)

    made = plan(Snapshot(1000, (mixed,), busy, (request("a1"), request("b2", count=2)), policy=policy))

    assert placements(made)["a1"].slot == stand(1000, "small")
    assert placements(made)["b2"].slot == stand(1300, "small", "large")


def test_a_slice_holds_one_box_at_a_time_however_much_is_free() -> None:
    queue = (request("a1", slice="s"), request("b2", slice="s", length=50), request("c3"))

    made = plan(Snapshot(1000, (pool(9),), (running("r", "p0", end=1020, slice="s"),), queue, policy=CONSERVATIVE))

    assert starts(made) == {"a1": 1020, "b2": 1120, "c3": 1000}


@EITHER
def test_a_short_box_goes_into_a_gap_of_its_slice(policy: PlanPolicy) -> None:
    queue = (request("a1", slice="s", earliest=1100), request("b2", slice="s"), request("c3", slice="s"))

    assert starts(plan(Snapshot(1000, (pool(9),), queue=queue, policy=policy))) == {"a1": 1100, "b2": 1000, "c3": 1200}


@EITHER
def test_of_several_pools_the_soonest_is_taken_and_then_the_one_that_is_liked_best(policy: PlanPolicy) -> None:
    pools = (pool(1), pool(1, id="q"))
    both = request("a1", pools=("q", "p"))

    assert placements(plan(Snapshot(1000, pools, queue=(both,), policy=policy)))["a1"].slot == stand(1000, "q0", pool="q")
    busy = (running("r", "q0", end=1001, pool="q"),)
    assert placements(plan(Snapshot(1000, pools, busy, (both,), policy=policy)))["a1"].slot == stand(1000, "p0")


@EITHER
def test_a_box_is_not_spread_over_pools(policy: PlanPolicy) -> None:
    made = plan(Snapshot(1000, (pool(1), pool(1, id="q")), queue=(request("a1", count=2, pools=("p", "q")),), policy=policy))

    assert placements(made)["a1"].explanation.reason is Reason.NEVER_FITS


@EITHER
def test_nothing_is_placed_into_a_closed_window(policy: PlanPolicy) -> None:
    closed = {0: (Window(1050, 2000),)}

    made = plan(Snapshot(1000, (pool(1, closed=closed),), queue=(request("long1"), request("short2", length=50)), policy=policy))

    assert starts(made) == {"long1": 2000, "short2": 1000}


@EITHER
def test_a_box_may_run_on_into_a_closed_window_which_then_holds_all_the_same(policy: PlanPolicy) -> None:
    closed = {0: (Window(1050, 2000),)}

    made = plan(Snapshot(1000, (pool(1, closed=closed),), (running("r", "p0", end=1100),), (request("a", gpus=1),), policy=policy))

    assert starts(made) == {"a": 2000}


@EITHER
def test_nobody_starts_before_the_time_that_was_asked_for(policy: PlanPolicy) -> None:
    assert starts(plan(Snapshot(1000, (pool(1),), queue=(request("a", earliest=1500),), policy=policy))) == {"a": 1500}


@EITHER
def test_an_overdue_box_is_expected_at_the_next_multiple_of_the_grace(policy: PlanPolicy) -> None:
    busy = (running("r", "p0", end=1000),)

    assert [starts(plan(Snapshot(now, (pool(1),), busy, (request("a"),), policy=policy))) for now in (1000, 1059, 1060)] == [
        {"a": 1060},
        {"a": 1060},
        {"a": 1120},
    ]


@EITHER
@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (request("too many", count=4), LargestRequest(False, 3, 4)),
        (request("too large", gpus=9), LargestRequest(False, 1, 8)),
        (request("fewer fit when large", count=3, gpus=8), LargestRequest(False, 1, 8)),
        (request("other pool", pools=("q",)), LargestRequest(False, 0, 0)),
        (request("no pool", pools=()), LargestRequest(False, 0, 0)),
        (request("all of it", count=3, gpus=4), LargestRequest(True, 3, 4)),
    ],
)
def test_what_no_pool_could_hold_even_when_empty_never_fits(wanted: Request, most: LargestRequest, policy: PlanPolicy) -> None:
    mixed = Pool("p", "c", "s", (Node("a", 4), Node("b", 8), Node("c", 4)))

    assert largest_that_fits((mixed,), wanted) == most
    placement = plan(Snapshot(1000, (mixed,), queue=(wanted,), policy=policy)).placements[0]
    assert (placement.slot is None) is not most.fits
    if not most.fits:
        explanation = placement.explanation
        assert (explanation.reason, explanation.most_node_count) == (Reason.NEVER_FITS, most.node_count)
        assert (placement.promise_s, explanation.most_gpus_per_node) == (None, most.gpus_per_node)


def _between(*, gain: int) -> Snapshot:
    """Pool p is busy for 300 s more, pool q is free but costs so much."""
    waiting = replace(request("a", pools=("p", "q")), handicaps=(("q", gain),))
    return Snapshot(1000, (pool(1), pool(1, id="q")), (running("r", "p0", end=1300),), (waiting,), policy=GUARDED)


def test_a_pool_with_a_handicap_is_used_where_it_saves_more_than_that() -> None:
    made = plan(_between(gain=299))

    (placement,) = made.starts
    assert placement.slot == stand(1000, "q0", pool="q")


def test_it_is_not_used_where_it_saves_no_more_however_long_it_stays_free() -> None:
    world = settled(_between(gain=300))

    assert starts(plan(world)) == {"a": 1300}
    assert starts(plan(replace(world, now_s=1001))) == {"a": 1300}


def test_who_waits_for_a_better_liked_pool_goes_to_the_other_when_that_place_is_lost() -> None:
    """The node of its slot is closed for long: now the handicap is worth it."""
    world = settled(_between(gain=300))
    closed = pool(1, closed={0: (Window(1000, 9000),)})

    made = plan(replace(world, now_s=1010, pools=(closed, pool(1, id="q"))))

    (placement,) = made.starts
    assert placement.slot == stand(1010, "q0", pool="q")


@pytest.mark.parametrize(("gain", "start"), [(999, 1000), (1000, 2000)])
def test_who_waits_for_a_better_liked_pool_takes_what_comes_free_in_another_where_it_saves_more(gain: int, start: int) -> None:
    """Its slot is 1000 s from now, and a node of the other pool free."""
    waits = replace(waiting("a", 2000, "p0"), pools=("p", "q"), handicaps=(("q", gain),))
    world = Snapshot(1000, (pool(1), pool(1, id="q")), (running("r", "p0", end=2000),), (waits,), policy=GUARDED)

    assert starts(plan(world)) == {"a": start}


def test_it_is_foretold_who_loses_the_place_that_it_waits_for_to_one_that_goes_before_it() -> None:
    """Node p0 has room for `a2` from 5 on, which is better than node q0 at once; at 3 `b1` takes that room."""
    late = replace(waiting("a2", 55, "p0", gpus=3, length=10), pools=("p", "q"), handicaps=(("q", 8),))
    first = replace(waiting("b1", 70, "p0", gpus=2, length=50), earliest_start_s=3, priority=201)
    world = Snapshot(0, (pool(1, 4), pool(1, 4, id="q")), (running("r", "p0", end=5, gpus=2),), (first, late), policy=GUARDED)

    assert starts(plan(world)) == {"b1": 3, "a2": 3}


def test_handicaps_mean_nothing_to_a_booking() -> None:
    booked = replace(_between(gain=10**6).queue[0], is_fixed=True, earliest_start_s=1100)

    (placement,) = plan(replace(_between(gain=0), queue=(booked,))).placements

    assert placement.slot == stand(1100, "q0", pool="q")


def _racks(*racks: str) -> Pool:
    return replace(pool(len(racks)), nodes=tuple(Node(f"p{i}", 8, rack=rack) for i, rack in enumerate(racks)))


def test_a_gang_stands_in_one_rack_where_it_can_and_in_the_one_that_it_fills() -> None:
    """It takes the smaller of two racks with room, so that a larger gang still finds the other."""
    made = plan(Snapshot(1000, (_racks("a", "b", "a", "b", "a"),), queue=(request("gang", count=2),), policy=GUARDED))

    assert made.placements[0].slot == stand(1000, "p1", "p3")


def test_a_gang_that_no_rack_can_hold_stands_in_as_few_as_can_be() -> None:
    made = plan(Snapshot(1000, (_racks("a", "b", "c", "a", "b", "a"),), queue=(request("gang", count=4),), policy=GUARDED))

    assert made.placements[0].slot == stand(1000, "p0", "p2", "p3", "p5")


def test_whoever_wants_one_rack_waits_for_one_though_other_nodes_are_free() -> None:
    busy = (running("r", "p0", end=1300), running("s", "p1", end=1500))
    gang = replace(request("gang", count=2), within=Within.RACK)

    made = plan(Snapshot(1000, (_racks("a", "b", "a", "b"),), busy, (gang, request("one", slice="other")), policy=GUARDED))

    assert starts(made) == {"gang": 1300, "one": 1000}
    assert placements(made)["gang"].slot == stand(1300, "p0", "p2")


def test_an_nvlink_domain_is_nearer_than_a_rack() -> None:
    nodes = tuple(Node(f"p{i}", 8, rack="a", nvlink_domain=domain) for i, domain in enumerate(["", "x", "", "x"]))

    made = plan(Snapshot(1000, (replace(pool(1), nodes=nodes),), queue=(request("gang", count=2),), policy=GUARDED))

    assert made.placements[0].slot == stand(1000, "p1", "p3")


@given(
    sizes=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=5), min_size=1, max_size=3),
    count=st.integers(1, 7),
    gpus=st.integers(0, 10),
    ceiling=st.none() | st.integers(0, 20),
    within=st.sampled_from(list(Within)),
)
def test_the_most_that_could_start_would_start(sizes: list[list[int]], count: int, gpus: int, ceiling: int | None, within: Within) -> None:
    """A person who asks for what he is told gets it; none of both numbers is that of another pool, or of another limit."""
    pools = tuple(
        Pool(f"p{i}", "c", "s", tuple(Node(f"{i}{k}", size, rack="ab"[k % 2]) for k, size in enumerate(of))) for i, of in enumerate(sizes)
    )
    quotas = () if ceiling is None else (Quota("x", "s", 0, ceiling),)
    asked = replace(request("a", count=count, gpus=gpus, pools=tuple(pool.id for pool in pools)), project="x", within=within)

    def told(wanted: Request) -> Placement:
        return plan(Snapshot(1000, pools, queue=(wanted,), policy=GUARDED, quotas=quotas)).placements[0]

    first = told(asked)
    most = largest_that_fits(pools, asked, quotas)
    assert (first.slot is not None) is most.fits
    if most.node_count:
        fewer = told(replace(asked, node_count=min(most.node_count, count), gpus_per_node=most.gpus_per_node))
        assert fewer.slot is not None
    else:
        assert told(replace(asked, node_count=1, gpus_per_node=1)).slot is None


def test_what_no_rack_can_ever_hold_is_told_with_the_most_that_one_could() -> None:
    """Nodes whose rack nobody knows are in none with others."""
    gang = replace(request("gang", count=3), within=Within.RACK)

    (placement,) = plan(Snapshot(1000, (_racks("a", "", "a", "", ""),), queue=(gang,), policy=GUARDED)).placements

    assert (placement.slot, placement.explanation.reason) == (None, Reason.NEVER_FITS)
    assert placement.explanation.most_node_count == 2


def test_a_stored_slot_in_two_racks_moves_when_its_owner_wants_one() -> None:
    spread = replace(request("gang", count=2, promise=1400, slot=stand(1400, "p0", "p1")), within=Within.RACK)

    made = plan(Snapshot(1000, (_racks("a", "b", "a"),), (running("r", "p0", end=1200),), (spread,), policy=GUARDED))

    assert starts(made) == {"gang": 1200}
    assert made.placements[0].moved is None


@pytest.mark.parametrize("rack", ["s", ""], ids=["another", "unknown"])
def test_a_gang_whose_nodes_are_in_one_rack_no_more_is_told_that_and_not_that_it_was_edited(rack: str) -> None:
    nodes = (Node("p0", 8, rack="r"), Node("p1", 8, rack=rack), Node("p2", 8, (Window(0, 2000),), rack="r"))
    gang = replace(request("gang", count=2, promise=1400, slot=stand(1400, "p0", "p1")), within=Within.RACK)

    assert moves(Snapshot(1000, (Pool("p", "c", "s", nodes),), queue=(gang,))) == {"gang": PromiseMove(1400, 2000, Cause.TOPOLOGY, "")}

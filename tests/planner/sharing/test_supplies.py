"""Nodes that can be ordered: only for a start that is sooner by enough, and never at the cost of anybody else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.causes import Cause
from planner.engine import plan
from planner.offers import OfferFinder, offers
from planner.plan import Plan, Reason
from planner.sharing.supplies import ASSIGNMENTS_MOST
from planner.snapshot import Node, PlanPolicy, Pool, Request, Snapshot, Supply, Window, Within
from tests.effort import examples
from tests.planner.build import EITHER, moves, placements, pool, request, running, stand, starts
from tests.planner.draw import POLICIES
from tests.planner.oracle import problems
from tests.planner.world import World

LEAD_S, GAIN_S = 20, 10


def growing(count: int = 2, *, gpus: int = 8, lead: int = LEAD_S, gain: int = GAIN_S, id: str = "s") -> Pool:
    """It stands beside pool p: the same cluster and shape."""
    nodes = tuple(Node(f"{id}{i}", gpus) for i in range(count))
    return Pool(id, "cluster-p", "shape-p", nodes, Supply(f"supply-{id}", lead, gain, frozenset(node.id for node in nodes)))


def asking(id: str, *, length: int = 100, count: int = 1, gpus: int = 0, earliest: int = 0) -> Request:
    """May use pool p, and order in s."""
    made = request(id, length=length, count=count, gpus=gpus, earliest=earliest, pools=("p", "s"))
    return replace(made, orders=("s",), handicaps=(("s", GAIN_S),))


def busy(*queue: Request, until: int = 1000, policy: PlanPolicy | None = None, grows: Pool | None = None) -> Snapshot:
    """There is one node, and it is taken until then."""
    made = Snapshot(0, (pool(1), growing() if grows is None else grows), (running("x", "p0", end=until),), queue)
    return made if policy is None else replace(made, policy=policy)


@EITHER
def test_whoever_gains_enough_stands_on_nodes_that_come_when_their_lead_time_is_over(policy: PlanPolicy) -> None:
    (placed,) = plan(busy(asking("a"), policy=policy)).placements

    assert (placed.slot, placed.promise_s, placed.starts_now) == (stand(LEAD_S, "s0", pool="s"), LEAD_S, False)
    assert placed.explanation.reason == Reason.WAITS_FOR_ORDER


@pytest.mark.parametrize(("until", "start"), [(LEAD_S + GAIN_S, LEAD_S), (LEAD_S + GAIN_S - 1, LEAD_S + GAIN_S - 1)])
def test_it_is_drawn_on_for_the_gain_and_no_second_less(until: int, start: int) -> None:
    assert starts(plan(busy(asking("a"), until=until))) == {"a": start}


@EITHER
def test_a_booking_orders_nothing_and_starts_at_its_time_or_never(policy: PlanPolicy) -> None:
    booked, far = (replace(asking(id_, count=count, earliest=500), is_fixed=True) for id_, count in (("booked", 1), ("far", 2)))

    (placed,) = plan(busy(booked, policy=policy)).placements
    (never,) = plan(busy(far, policy=policy)).placements

    assert (placed.slot, placed.explanation.reason) == (None, Reason.DOES_NOT_FIT_THEN)
    assert (never.explanation.reason, never.explanation.most_node_count) == (Reason.NEVER_FITS, 1)


def test_what_starts_later_anyway_is_ordered_when_it_is_time() -> None:
    """Before, it would keep the supply from those who could have it at once."""
    world = busy(asking("a", earliest=300))

    (early,) = plan(world).placements
    (in_time,) = plan(replace(world, now_s=300 - LEAD_S)).placements

    assert early.slot is not None
    assert early.slot.pool == "p"
    assert in_time.slot == stand(300, "s0", pool="s")


def test_whoever_has_no_other_place_has_it_ordered_however_late_it_starts() -> None:
    (placed,) = plan(busy(replace(asking("a", earliest=300), pools=("s",)))).placements

    assert placed.slot == stand(300, "s0", pool="s")


def test_a_supply_that_could_never_hold_a_gang_orders_nothing_for_it() -> None:
    busy_ones = tuple(running(f"r{i}", f"p{i}", end=1000) for i in range(3))

    (placed,) = plan(Snapshot(0, (pool(3), growing(2)), busy_ones, (asking("a", count=3),))).placements

    assert placed.slot == stand(1000, "p0", "p1", "p2")


def test_parts_of_one_ordered_node_are_shared() -> None:
    made = plan(busy(asking("a", gpus=4), asking("b", gpus=4), asking("c", gpus=4), grows=growing(1)))

    assert starts(made) == {"a": LEAD_S, "b": LEAD_S, "c": LEAD_S + 100}


def test_those_who_have_no_other_place_come_first_and_stand_behind_each_other() -> None:
    only = [replace(asking(f"o{i}", length=500), pools=("s",), handicaps=()) for i in range(2)]

    made = plan(busy(asking("a"), *only, grows=growing(1)))

    assert starts(made) == {"o0": LEAD_S, "o1": LEAD_S + 500, "a": 1000}


def test_what_nobody_ordered_yet_holds_nobody_who_may_not_order() -> None:
    """A pool that can grow among its pools is not enough: neither a newcomer, nor one whose node is gone, is put there."""
    plain = replace(asking("a"), orders=())
    lost = replace(asking("b"), orders=(), slot=stand(5, "gone"), promise_s=5)

    assert starts(plan(busy(plain, lost))) == {"b": 1000, "a": 1100}


@EITHER
def test_nodes_that_do_not_come_move_the_slot_with_the_cause(policy: PlanPolicy) -> None:
    ordered = Pool("s", "cluster-p", "shape-p", (Node("s0", 8, (Window(0, 60, order="s0", is_late=True),)),), Supply("supply-s", LEAD_S))
    waits = replace(asking("a"), slot=stand(0, "s0", pool="s"), promise_s=0)
    late = busy(waits, grows=ordered, policy=replace(policy, overrun_grace_s=60))

    assert {id_: (move.cause, move.cause_id, move.new_s) for id_, move in moves(late).items()} == {"a": (Cause.SUPPLY, "s0", 60)}

    canceled = busy(waits, grows=replace(ordered, nodes=()))
    assert {id_: (move.cause, move.cause_id, move.new_s) for id_, move in moves(canceled).items()} == {"a": (Cause.SUPPLY, "s0", 1000)}


def test_an_offer_says_what_would_be_ordered_and_of_the_rest_what_is_there() -> None:
    found = offers(busy(), asking("a"))

    assert [(offer.pool, offer.start_s, offer.promise_s, offer.supply) for offer in found] == [
        ("s", LEAD_S, LEAD_S, "supply-s"),
        ("p", 1000, 1000, ""),
    ]
    assert [offer.supply for offer in offers(busy(until=25), asking("a"))] == [""]


def test_nodes_that_would_be_ordered_for_one_question_are_not_there_in_the_next() -> None:
    finder = OfferFinder(busy())
    rooms = finder._board.capacity.gpu_counts.copy()

    assert [finder.offers(asking(id_)) for id_ in ("a", "b")] == [offers(busy(), asking(id_)) for id_ in ("a", "b")]
    assert (finder._board.capacity.gpu_counts == rooms).all()
    assert all(not finder._board.closed[node] for node in ("s0", "p0"))


@dataclass
class GrowingWorld(World):
    """Pool s can grow: what a plan stands on is ordered, and comes when it was to, or before."""

    expected_s: dict[str, int] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    lead_s: int = 5
    gain_s: int = 3

    def submit(self) -> Request:
        new = super().submit()
        if self.dice.random() < 0.6:
            pools = (*new.pools, "s")
            new = replace(new, pools=pools, orders=("s",), handicaps=(*new.handicaps, ("s", self.gain_s)))
            self.queue = (*self.queue[:-1], new)
        return new

    def snapshot(self) -> Snapshot:
        for id_, expected_s in list(self.expected_s.items()):
            if expected_s <= self.now_s or self.dice.random() < 0.05:
                del self.expected_s[id_]
                self.arrived.append(id_)
        new = [f"s{self.now_s}-{i}" for i in range(4 - len(self.expected_s) - len(self.arrived))]
        nodes = [*(Node(id_, 4) for id_ in self.arrived), *(Node(id_, 4) for id_ in new)]
        nodes += [Node(id_, 4, (Window(self.now_s, expected_s, order=id_),)) for id_, expected_s in self.expected_s.items()]
        grows = Pool("s", "cs", "s", tuple(nodes), Supply("supply", self.lead_s, self.gain_s, frozenset(new)))
        return replace(super().snapshot(), pools=(*self.pools, grows))

    def tick(self) -> tuple[Snapshot, Plan]:
        snapshot = self.snapshot()
        made = plan(snapshot)
        self._check(snapshot, made)
        self._store(snapshot, made)
        return snapshot, made

    def _check(self, snapshot: Snapshot, made: Plan) -> None:
        supply = snapshot.pools[-1].supply
        assert supply is not None
        by_id, requests = placements(made), {r.id: r for r in snapshot.queue}
        without = placements(plan(replace(snapshot, queue=tuple(replace(r, orders=()) for r in snapshot.queue))))
        moved = {id_ for id_, placed in by_id.items() if placed.slot != without[id_].slot and not placed.starts_now}
        drawn = {id_ for id_ in moved if requests[id_].orders and not without[id_].starts_now}
        ordered = {node for p in by_id.values() if p.slot for node in p.slot.nodes} & supply.unordered
        opened = replace(snapshot, pools=(*snapshot.pools[:-1], self._as_if_ordered(snapshot.pools[-1], supply)))
        # Also who would have started now, but for another's order; and who was drawn onto nodes that have come, and starts there now.
        sooner = {id_ for id_ in by_id if requests[id_].orders and (id_ in moved or by_id[id_].starts_now)}
        faults = [fault for fault in problems(opened, made) if not ("tightened" in fault and fault.split(":")[0] in sooner)]
        assert faults == []
        assert all(p.moved is None for p in made.placements)
        # Others may start now in their stead, or not; nobody is promised anything else for it.
        assert all(by_id[id_].promise_s == without[id_].promise_s for id_ in by_id if id_ not in sooner)
        # Nobody starts on what is not there.
        there = {node.id for pool in snapshot.pools[:-1] for node in pool.nodes} | set(self.arrived)
        assert all(p.slot is not None and there >= set(p.slot.nodes) for p in made.starts)
        if len(drawn) == 1:
            (id_,) = drawn
            placed, before_s = by_id[id_], without[id_].start_s
            assert placed.slot is not None
            assert before_s is None or before_s - placed.slot.start_s >= self.gain_s
        if len(drawn) < ASSIGNMENTS_MOST:
            left = [node for node in supply.unordered if node not in ordered]
            hopeful = [requests[id_] for id_ in by_id if requests[id_].orders and by_id[id_].slot is not None]
            for r in hopeful:
                comes_s, start_s = max(snapshot.now_s + self.lead_s, r.earliest_start_s), by_id[r.id].start_s or 0
                # Nobody knows yet in which rack an ordered node will be.
                is_time = r.earliest_start_s <= snapshot.now_s + self.lead_s
                may_stand = is_time and r.slice in {"", r.id} and (r.within == Within.ANY or r.node_count == 1)
                assert not (may_stand and len(left) >= r.node_count and r.gpus_per_node <= 4 and start_s - comes_s >= self.gain_s)
        self.expected_s |= {
            id_: min(p.slot.start_s for p in by_id.values() if p.slot is not None and id_ in p.slot.nodes) for id_ in ordered
        }

    def _as_if_ordered(self, grows: Pool, supply: Supply) -> Pool:
        comes = (Window(self.now_s, self.now_s + supply.lead_s),)
        return replace(grows, nodes=tuple(replace(n, closed=comes) if n.id in supply.unordered else n for n in grows.nodes))


@examples(150)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), st.sets(st.sampled_from(["cancel", "early"])))
def test_no_promise_moves_for_an_order_and_what_gains_too_little_is_never_ordered(seed: int, policy: PlanPolicy, mishaps: set[str]) -> None:
    world = GrowingWorld(seed, policy, frozenset(mishaps))
    for _ in range(40):
        world.step()

    assert world.moves == {}
    assert all(start_s <= world.first_promise_s[id_] for id_, start_s in world.started_s.items())


def test_supplies_of_one_cluster_and_shape_have_one_offer_the_soonest() -> None:
    """It stands beside that of the nodes that are there; a supply that could never hold it has none."""
    quick, slow, small = growing(lead=30, id="t"), growing(lead=60, id="s"), growing(1, lead=5, id="u")
    world = replace(busy(), pools=(pool(1), slow, quick, small))
    candidate = replace(request("a", count=2, pools=("p", "s", "t", "u")), orders=("s", "t", "u"))

    found = offers(world, candidate)

    assert [(offer.start_s, offer.supply) for offer in found] == [(30, "supply-t")]

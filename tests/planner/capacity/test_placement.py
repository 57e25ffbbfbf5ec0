"""Places for a box against brute force: every second, every node, every limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.board.empty import capacity_of
from planner.capacity.placement import (
    Capacity,
    Demand,
    choose,
    copy_capacity,
    earliest,
    earliest_on,
    has_room_at,
    latest,
    place_earliest,
    take,
    unlimited_demand,
)
from planner.capacity.profile import NEVER_S, NONE, Ints, least_free, with_more_profiles, with_unused_steps
from planner.snapshot import Node, Pool
from tests.effort import examples

# All that is drawn is over by then.
END_S = 40
FAR_S = 80
LIMITS = (1, 6)
MANY = examples(300)


@dataclass
class Field:
    """It has the capacity of each second: `free[node][at]`, `room[limit][at]`."""

    pools: tuple[tuple[int, ...], ...]
    capacity: Capacity
    free: list[list[int]]
    parts: tuple[tuple[str, ...], tuple[str, ...]]  # NVLink domain and rack of each node
    room: list[list[int]] = field(default_factory=lambda: [[limit] * FAR_S for limit in LIMITS])

    @property
    def sizes(self) -> list[int]:
        return [size for of_pool in self.pools for size in of_pool]

    def members(self, pool: int) -> range:
        first = sum(len(of_pool) for of_pool in self.pools[:pool])
        return range(first, first + len(self.pools[pool]))

    def need(self, node: int, demand: Demand) -> int:
        size = self.sizes[node]
        return demand.gpus or size if 0 < (demand.gpus or size) <= size else 99

    def put(self, nodes: tuple[int, ...], demand: Demand, start_s: int) -> None:
        end_s = start_s + demand.length_s
        take(self.capacity, ints(nodes), demand, start_s, end_s, 1)
        for at in range(start_s, end_s):
            for node in nodes:
                self.free[node][at] -= self.need(node, demand)
            for limit, amount in self.limits(nodes, demand, are_known=True):
                self.room[limit][at] -= amount

    def limits(self, nodes: tuple[int, ...], demand: Demand, *, are_known: bool) -> list[tuple[int, int]]:
        """Returns what it takes of which limit in this pool: of a quota whole nodes that are known take no more than they have."""
        pool = next(p for p in range(len(self.pools)) if nodes[0] in self.members(p))
        row = next((i for i, own in enumerate(demand.pools) if own == pool), 0)
        of_slice, *of_quotas = zip(demand.limits[row].tolist(), demand.amounts[row].tolist(), strict=True)
        most = sum(self.sizes[node] for node in nodes) if are_known and demand.gpus == 0 else 99
        return [(limit, amount) for limit, amount in [of_slice, *((limit, min(amount, most)) for limit, amount in of_quotas)] if limit >= 0]

    def has_room(self, nodes: tuple[int, ...], demand: Demand, start_s: int, *, are_known: bool = True) -> bool:
        seconds = range(start_s, start_s + demand.length_s)
        limits = self.limits(nodes, demand, are_known=are_known)
        return all(self.room[limit][at] >= amount for at in seconds for limit, amount in limits) and all(
            self.free[node][at] >= self.need(node, demand) for at in seconds for node in nodes
        )

    def fitting(self, pool: int, demand: Demand, start_s: int) -> list[int]:
        return [node for node in self.members(pool) if self.has_room((node,), demand, start_s, are_known=False)]

    def places(self, demand: Demand, times: range) -> list[tuple[int, int, int]]:
        """(start, place of its pool in its order, pool): wherever and whenever it has room."""
        pools = [(i, int(pool)) for i, pool in enumerate(demand.pools)]
        return [(at, i, pool) for at in times for i, pool in pools if self.is_place(self.fitting(pool, demand, at), demand)]

    def is_place(self, nodes: list[int], demand: Demand) -> bool:
        if demand.level == NONE or demand.nodes == 1:
            return len(nodes) >= demand.nodes
        return any(len(of_part) >= demand.nodes for of_part in self.of_parts(nodes, demand.level))

    def of_parts(self, nodes: list[int], level: int) -> list[list[int]]:
        """The nodes by part, in the order in which parts come in all pools."""
        names = dict.fromkeys(name for name in self.parts[level] if name)
        return [[node for node in nodes if self.parts[level][node] == name] for name in names]

    def part(self, nodes: list[int], demand: Demand) -> list[int] | None:
        """Returns from which of these a gang is taken: all of one part, the tightest that is enough; None: no part is."""
        for level in (0, 1) if demand.level == NONE else (demand.level,):
            enough = [of_part for of_part in self.of_parts(nodes, level) if len(of_part) >= demand.nodes]
            if enough:
                return min(enough, key=len)
        return None

    def cost(self, node: int, demand: Demand, start_s: int) -> tuple[int, int, int]:
        end_s, need = start_s + demand.length_s, self.need(node, demand)
        gap_end_s = next((at for at in range(end_s, FAR_S) if self.free[node][at] < need), FAR_S)
        return min(self.free[node][start_s:end_s]) - need, gap_end_s, node


def ints(values: tuple[int, ...] | list[int]) -> Ints:
    return np.array(values, np.int64)


@st.composite
def demands(draw: st.DrawFn, pool_count: int) -> Demand:
    pools = draw(st.permutations(range(pool_count)))[: draw(st.integers(1, pool_count))]
    limits = [draw(st.sampled_from([(-1, -1), (0, -1), (1, -1), (0, 1)])) for _ in pools]
    amounts = [tuple(draw(st.integers(1, 6)) if limit == 1 else 1 for limit in row) for row in limits]
    sizes = draw(st.integers(1, 3)), draw(st.integers(0, 4)), draw(st.integers(1, 9)), draw(st.sampled_from([NONE, NONE, 0, 1]))
    handicaps = draw(st.lists(st.sampled_from([0, 0, 3, 7]), min_size=len(pools), max_size=len(pools)))
    return Demand(*sizes, ints(tuple(pools)), ints(handicaps), np.array(limits, np.int64), np.array(amounts, np.int64))


@st.composite
def fields(draw: st.DrawFn) -> Field:
    """One or two pools of at most four nodes in all, with boxes wherever they have room."""
    sizes = draw(st.sampled_from([((4,),), ((2, 4, 4),), ((4,), (2, 4)), ((2, 2), (4, 4)), ((0, 4), (4,))]))
    of_nodes = st.lists(st.sampled_from(["", "x", "y"]), min_size=4, max_size=4)
    parts = tuple(draw(of_nodes)), tuple(draw(of_nodes))
    names = zip(*parts, strict=True)
    pools = tuple(
        Pool(str(p), "c", "s", tuple(_node(f"{p}.{i}", size, *next(names)) for i, size in enumerate(of_pool)))
        for p, of_pool in enumerate(sizes)
    )
    capacity = capacity_of(pools, 0)
    limits = capacity.limits
    for limit in LIMITS:
        limits = with_more_profiles(limits, [limit], 0)
    capacity = capacity._replace(nodes=with_unused_steps(capacity.nodes, 200), limits=with_unused_steps(limits, 100))
    made = Field(sizes, capacity, [[size] * FAR_S for of_pool in sizes for size in of_pool], parts)
    for _ in range(draw(st.integers(0, 8))):
        demand, start_s = draw(demands(len(sizes))), draw(st.integers(0, END_S - 10))
        pool = int(demand.pools[0])
        nodes = tuple(made.fitting(pool, demand, start_s))[: demand.nodes]  # wherever there is room, near or far
        if len(nodes) == demand.nodes:
            made.put(nodes, demand, start_s)
    return made


def _node(id_: str, size: int, domain: str, rack: str) -> Node:
    return Node(id_, size, rack=rack, nvlink_domain=domain)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Field, Demand]:
    made = draw(fields())
    return made, draw(demands(len(made.pools)))


@MANY
@given(cases(), st.integers(0, 30), st.integers(0, 50))
def test_the_earliest_place_is_the_first_second_with_its_handicap_and_of_its_pools_the_best_liked(
    case: tuple[Field, Demand], since_s: int, before_s: int
) -> None:
    made, demand = case
    places = made.places(demand, range(since_s, before_s))
    best = min(places, key=lambda place: (place[0] + demand.handicaps_s[place[1]], place[1]), default=(NEVER_S, NONE, NONE))

    assert earliest(made.capacity, demand, since_s, before_s) == (best[0], best[2])


@MANY
@given(cases(), st.integers(0, 30), st.integers(0, 50))
def test_the_latest_place_is_the_last_second_less_its_handicap_and_of_its_pools_the_best_liked(
    case: tuple[Field, Demand], since_s: int, until_s: int
) -> None:
    made, demand = case
    places = made.places(demand, range(since_s, until_s + 1))
    best = min(places, key=lambda place: (demand.handicaps_s[place[1]] - place[0], place[1]), default=(NONE, NONE, NONE))

    assert latest(made.capacity, demand, since_s, until_s) == (best[0], best[2])


@MANY
@given(cases(), st.integers(0, 40))
def test_the_nodes_chosen_are_near_together_leave_least_over_then_the_shortest_gap_then_come_first(
    case: tuple[Field, Demand], start_s: int
) -> None:
    made, demand = case
    for pool in range(len(made.pools)):
        # Limits are no matter of nodes: they are looked at before.
        bare = demand._replace(limits=np.full_like(demand.limits, NONE))
        fitting = made.fitting(pool, bare, start_s)
        near = made.part(fitting, demand) if len(fitting) >= demand.nodes > 1 else fitting
        chosen = list(choose(made.capacity, pool, demand, start_s))

        if near is not None:
            assert chosen == sorted(sorted(near, key=lambda node: made.cost(node, bare, start_s))[: demand.nodes])
        elif demand.level != NONE:
            assert chosen == []
        else:
            racks = [len({made.parts[1][node] for node in nodes}) for nodes in combinations(fitting, demand.nodes)]
            assert len({made.parts[1][node] for node in chosen}) == min(racks)


@MANY
@given(cases(), st.integers(0, 40))
def test_there_is_room_on_certain_nodes_if_each_second_has_it(case: tuple[Field, Demand], start_s: int) -> None:
    made, demand = case
    for nodes in combinations(made.members(int(demand.pools[0])), demand.nodes):
        assert has_room_at(made.capacity, ints(nodes), demand, start_s) is made.has_room(nodes, demand, start_s)


@MANY
@given(cases(), st.integers(0, 30), st.integers(0, 30))
def test_the_earliest_start_on_certain_nodes_is_the_first_second_at_which_all_have_room(
    case: tuple[Field, Demand], since_s: int, more_s: int
) -> None:
    made, demand = case
    until_s = since_s + more_s
    for nodes in combinations(made.members(int(demand.pools[0])), demand.nodes):
        expected = next((at for at in range(since_s, until_s + 1) if made.has_room(nodes, demand, at)), NEVER_S)
        assert earliest_on(made.capacity, ints(nodes), demand, since_s, until_s) == expected


@MANY
@given(cases(), st.integers(0, 30), st.integers(0, 10))
def test_the_first_place_is_taken_where_it_is_found(case: tuple[Field, Demand], since_s: int, ahead_s: int) -> None:
    """This holds also for a search that begins some time ahead: what comes before stays known."""
    made, demand = case
    now_s = max(since_s - ahead_s, 0)
    expected = earliest(made.capacity, demand, since_s, NEVER_S)

    start_s, pool, places = place_earliest(made.capacity, demand, since_s, now_s)

    assert (start_s, pool) == expected
    assert len(places) == (0 if pool == NONE else demand.nodes)
    for at in range(start_s, start_s + demand.length_s) if pool != NONE else ():
        for node in places:
            made.free[node][at] -= made.need(int(node), demand)
    for node in range(len(made.sizes)):
        assert [least_free(made.capacity.nodes, node, at, at + 1) for at in range(now_s, FAR_S)] == made.free[node][now_s:]


@MANY
@given(cases(), st.integers(0, 30))
def test_a_copy_can_be_played_on_without_changing_the_original(case: tuple[Field, Demand], since_s: int) -> None:
    made, demand = case
    expected = earliest(made.capacity, demand, since_s, NEVER_S)

    place_earliest(copy_capacity(made.capacity), demand, since_s, since_s)

    assert earliest(made.capacity, demand, since_s, NEVER_S) == expected


@MANY
@given(cases(), st.integers(0, 30))
def test_a_box_that_is_put_and_taken_out_again_leaves_no_trace(case: tuple[Field, Demand], since_s: int) -> None:
    made, demand = case
    before = [array.copy() for array in (made.capacity.nodes.unused[1:], made.capacity.limits.unused[1:])]
    start_s, pool = earliest(made.capacity, demand, since_s, NEVER_S)
    if pool == NONE:
        return
    places = choose(made.capacity, pool, demand, start_s)

    take(made.capacity, places, demand, start_s, start_s + demand.length_s, 1)
    take(made.capacity, places, demand, start_s, start_s + demand.length_s, -1)

    assert earliest(made.capacity, demand, since_s, NEVER_S) == (start_s, pool)
    assert list(choose(made.capacity, pool, demand, start_s)) == list(places)
    after = (made.capacity.nodes.unused[1:], made.capacity.limits.unused[1:])
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_boxes_that_held_a_node_which_has_no_gpus_left_do_not_make_room_there() -> None:
    """Three boxes of one GPU, all GPUs gone: what they hold is little, and nobody fits."""
    capacity = capacity_of((Pool("p", "c", "s", (Node("a", 0), Node("b", 8))),), 0)
    capacity = capacity._replace(nodes=with_unused_steps(capacity.nodes, 20))
    held = unlimited_demand(1, 1, 50)._replace(pools=ints((0,)))
    for _ in range(3):
        take(capacity, ints((0,)), held, 0, 50, 1)

    for gpus in (0, 1):
        asked = held._replace(gpus=gpus, nodes=2)
        assert earliest(capacity, asked, 0, NEVER_S) == (NEVER_S, NONE)
    assert list(choose(capacity, 0, held, 0)) == [1]

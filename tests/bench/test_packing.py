"""Packing parts of nodes: nothing is given twice, nothing refused that fits, and less is left unusable than under other policies."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.packing.model import WHOLE_GPU, Kind, PackNode, PackRequest, Placement, Policy, demand_of
from bench.packing.packer import Packer
from bench.packing.worths import worths_of
from tests.effort import examples

# Each day: tests/planner/capacity/test_placement.py; what is here only a benchmark uses
pytestmark = pytest.mark.rotates

DATA = Path(__file__).parent / "data"

NODES = st.builds(
    lambda cpu, memory, gpus, model: (cpu * 1000, memory, gpus, model),
    st.integers(0, 16),
    st.integers(0, 64),
    st.integers(0, 4),
    st.sampled_from("AB"),
).map(lambda row: PackNode("", *row))
SIZES = st.tuples(st.integers(0, 8).map(lambda cores: cores * 1000), st.integers(0, 16))
MODELS = st.sampled_from([(), ("A",), ("B",), ("A", "B"), ("C",)])
REQUESTS = st.one_of(
    st.builds(lambda size: PackRequest(size[0], size[1]), SIZES),
    st.builds(lambda size, milli, models: PackRequest(size[0], size[1], 1, milli, models), SIZES, st.integers(1, 1000), MODELS),
    st.builds(lambda size, count, models: PackRequest(size[0], size[1], count, WHOLE_GPU, models), SIZES, st.integers(1, 4), MODELS),
)


def named(nodes: Sequence[PackNode]) -> list[PackNode]:
    return [PackNode(f"n{i}", node.cpu_milli, node.memory_mib, node.gpu_count, node.model) for i, node in enumerate(nodes)]


class Book:
    """It counts what is free by plain arithmetic beside the packer."""

    def __init__(self, nodes: Sequence[PackNode]) -> None:
        self.model = {node.id: node.model for node in nodes}
        self.cpu = {node.id: node.cpu_milli for node in nodes}
        self.memory = {node.id: node.memory_mib for node in nodes}
        self.gpus = {node.id: [WHOLE_GPU] * node.gpu_count for node in nodes}

    def move(self, placement: Placement, sign: int) -> None:
        request, node = placement.request, placement.node_id
        self.cpu[node] += sign * request.cpu_milli
        self.memory[node] += sign * request.memory_mib
        for gpu in placement.gpus:
            self.gpus[node][gpu] += sign * request.gpu_milli

    def fits(self, request: PackRequest, node: str) -> bool:
        gpus = [left for left in self.gpus[node] if left >= request.gpu_milli]
        allowed = not request.gpu_count or not request.models or self.model[node] in request.models
        return (
            allowed and self.cpu[node] >= request.cpu_milli and self.memory[node] >= request.memory_mib and len(gpus) >= request.gpu_count
        )

    def is_sound(self) -> bool:
        free = [*self.cpu.values(), *self.memory.values(), *(left for gpus in self.gpus.values() for left in gpus)]
        return all(left >= 0 for left in free) and all(left <= WHOLE_GPU for gpus in self.gpus.values() for left in gpus)

    def fragmentation(self, demand: Sequence[Kind]) -> float:
        """The definition of ATC'23, in GPUs, written to be read."""
        lost = 0.0
        for node, gpus in self.gpus.items():
            for kind in demand:
                want = kind.request
                bare = PackRequest(want.cpu_milli, 0, want.gpu_count, want.gpu_milli, want.models)
                scraps = [left for left in gpus if not want.gpu_count or not self.fits(bare, node) or left < want.gpu_milli]
                lost += kind.share * sum(scraps)
        return lost / WHOLE_GPU


@pytest.mark.parametrize("policy", list(Policy))
@examples(60)
@given(nodes=st.lists(NODES, min_size=1, max_size=4), requests=st.lists(REQUESTS, max_size=15), draw=st.integers(0, 10**6))
def test_nothing_is_given_twice_and_nothing_refused_that_fits(
    policy: Policy, nodes: list[PackNode], requests: list[PackRequest], draw: int
) -> None:
    nodes = named(nodes)
    book, packer = Book(nodes), Packer(nodes, policy=policy, demand=demand_of(requests))

    for count, request in enumerate(requests):
        placement = packer.place(request, draw=draw)
        if placement is None:
            assert not any(book.fits(request, node.id) for node in nodes)
            continue
        assert book.fits(request, placement.node_id)
        assert len(placement.gpus) == request.gpu_count
        book.move(placement, -1)
        assert book.is_sound()
        if count % 3 == 2:
            packer.give_back(placement)
            book.move(placement, +1)
        assert packer.free_gpu_milli == sum(left for gpus in book.gpus.values() for left in gpus)


@examples(60)
@given(nodes=st.lists(NODES, min_size=1, max_size=3), requests=st.lists(REQUESTS, min_size=1, max_size=8), placed=st.integers(0, 8))
def test_fragmentation_is_what_the_average_request_cannot_use(nodes: list[PackNode], requests: list[PackRequest], placed: int) -> None:
    nodes, demand = named(nodes), demand_of(requests)
    book, packer = Book(nodes), Packer(nodes, policy=Policy.FGD, demand=demand)
    for request in requests[:placed]:
        placement = packer.place(request)
        if placement:
            book.move(placement, -1)

    assert packer.fragmentation() == pytest.approx(book.fragmentation(demand))


@pytest.mark.parametrize("policy", list(Policy))
def test_the_same_calls_give_the_same_placements(policy: Policy) -> None:
    nodes, requests = openb()

    first, second = (list(placements(nodes[:20], requests[:200], policy)) for _ in range(2))

    assert first == second
    assert None in first


def test_the_demand_does_not_depend_on_the_order_of_requests() -> None:
    _, requests = openb()

    assert demand_of(requests) == demand_of(requests[::-1])
    assert sum(kind.share for kind in demand_of(requests, cover=0.5)) == pytest.approx(1)
    assert len(demand_of(requests, cover=0.5)) < len(demand_of(requests))


def test_ours_leaves_less_unused_than_best_fit_and_best_fit_less_than_random() -> None:
    nodes, requests = openb()

    allocated = {
        policy: sum(made.request.gpu_milli_sum for made in placements(nodes, requests, policy) if made)
        for policy in (Policy.RANDOM, Policy.BEST_FIT, Policy.EGS)
    }

    assert allocated[Policy.RANDOM] < allocated[Policy.BEST_FIT] <= allocated[Policy.EGS]


def test_a_share_that_goes_well_with_others_costs_less_than_one_that_leaves_a_scrap() -> None:
    nodes = [PackNode(f"n{i}", 64_000, 0, 8, "A") for i in range(4)]
    pair, odd = PackRequest(1000, 0, 1, 500), PackRequest(1000, 0, 1, 810)

    worths = worths_of(nodes, demand_of([pair, pair, odd]))

    in_pairs, alone = worths.prices
    assert alone == pytest.approx(810, abs=1)
    # A GPU holds two of them, and would otherwise earn the 810.
    assert in_pairs < 450


def test_a_request_with_much_cpu_goes_where_cpu_is_left_over() -> None:
    rich, poor = PackNode("rich", 64_000, 0, 2, "A"), PackNode("poor", 16_000, 0, 2, "A")
    heavy, light = PackRequest(14_000, 0, 1, WHOLE_GPU), PackRequest(4_000, 0, 1, WHOLE_GPU)
    packer = Packer([poor, rich], policy=Policy.EGS, demand=demand_of([heavy, light]))

    placed = [packer.place(request) for request in (heavy, light, heavy, light)]

    assert [made and made.node_id for made in placed] == ["rich", "poor", "rich", "poor"]


def test_a_whole_node_is_kept_for_those_who_need_it() -> None:
    nodes = [PackNode(f"n{i}", 64_000, 0, 4, "A") for i in range(2)]
    one, four = PackRequest(1000, 0, 1, WHOLE_GPU), PackRequest(4000, 0, 4, WHOLE_GPU)
    packer = Packer(nodes, policy=Policy.EGS, demand=demand_of([one, one, one, four]))

    placed = [packer.place(request) for request in (one, one, one, four)]

    assert [made and made.node_id for made in placed] == ["n0", "n0", "n0", "n1"]


def test_the_few_nodes_that_can_take_a_large_request_are_kept_for_it() -> None:
    nodes = [PackNode("large", 128_000, 0, 8, "A"), *(PackNode(f"n{i}", 96_000, 0, 8, "A") for i in range(9))]
    heavy, large = PackRequest(16_000, 0, 1, WHOLE_GPU), PackRequest(120_000, 0, 8, WHOLE_GPU)
    packer = Packer(nodes, policy=Policy.EGS, demand=demand_of([*[heavy] * 20, large]))

    placed = [packer.place(request) for request in [*[heavy] * 20, large]]

    assert [made.node_id for made in placed if made and made.request == large] == ["large"]


@pytest.mark.parametrize("row", [(1, 1, 1, 0), (1, 1, 0, 500), (1, 1, 2, 500), (1, 1, 1, 1001), (-1, 1, 0, 0)])
def test_a_request_that_makes_no_sense_is_refused(row: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"GPU|negative"):
        PackRequest(*row)


def placements(nodes: Sequence[PackNode], requests: Sequence[PackRequest], policy: Policy) -> list[Placement | None]:
    packer = Packer(nodes, policy=policy, demand=demand_of(requests))
    return [packer.place(request, draw=7919 * count) for count, request in enumerate(requests)]


def openb() -> tuple[list[PackNode], list[PackRequest]]:
    with (DATA / "openb_slice_nodes.csv").open() as file:
        nodes = [PackNode(row[0], int(row[1]), int(row[2]), int(row[3]), row[4]) for row in list(csv.reader(file))[1:]]
    with (DATA / "openb_slice_pods.csv").open() as file:
        rows = [[int(cell) for cell in row] for row in list(csv.reader(file))[1:]]
    return nodes, [PackRequest(cpu, memory, count, milli if count else 0) for cpu, memory, count, milli in rows]

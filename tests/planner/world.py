"""A small world that the planner rules: time passes, boxes end when they end, nodes close, people come and go.

It keeps what the allocator keeps (slots, promises) and knows what the planner doesn't: when boxes really end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from gpr.planner.engine import plan
from gpr.planner.plan import Placement, Plan, PromiseMove
from gpr.planner.snapshot import Node, Policy, Pool, Request, Running, Snapshot, Window
from tests.planner.build import run, stored
from tests.planner.oracle import problems

GRACE_S = 3


@dataclass
class World:
    """`mishaps`: which troubles happen, of "late" (ticks are missed), "close", "cancel", "edit", "overrun" and "early"."""

    seed: int
    mishaps: frozenset[str] = frozenset()
    now_s: int = 0
    pools: tuple[Pool, ...] = ()
    queue: tuple[Request, ...] = ()
    running: dict[str, Running] = field(default_factory=dict)
    real_end_s: dict[str, int] = field(default_factory=dict)
    moves: dict[str, list[PromiseMove]] = field(default_factory=dict)
    first_promise_s: dict[str, int] = field(default_factory=dict)
    started_s: dict[str, int] = field(default_factory=dict)
    freed_nodes: list[str] = field(default_factory=list)
    freed_slices: list[str] = field(default_factory=list)
    is_freed: bool = False
    count: int = 0
    last_tick_s: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        sizes = self.dice.choice([(1,), (2,), (3,), (2, 2)])
        self.pools = tuple(self._pool("pq"[i], size) for i, size in enumerate(sizes))

    def step(self) -> tuple[Snapshot, Plan]:
        """One tick later: what happened meanwhile, the plan, and what it starts."""
        self.now_s += self.dice.choice([1, 2, 5, 9]) if "late" in self.mishaps else 1
        self.end_boxes()
        for mishap, act in (("close", self._close), ("cancel", self._cancel), ("edit", self._edit)):
            if mishap in self.mishaps and self.dice.random() < 0.1:
                act()
        if self.dice.random() < 0.5:
            self.submit()
        return self.tick()

    def tick(self) -> tuple[Snapshot, Plan]:
        snapshot = self.snapshot()
        made = plan(snapshot)
        assert problems(snapshot, made) == []
        self._store(snapshot, made)
        return snapshot, made

    def snapshot(self) -> Snapshot:
        """With account kept of what came free; a plan must be the same without."""
        return Snapshot(
            now_s=self.now_s,
            pools=self.pools,
            running=tuple(self.running.values()),
            queue=self.queue,
            policy=Policy(overrun_grace_s=GRACE_S, may_improve=self.is_freed),
            freed_nodes=tuple(self.freed_nodes),
            freed_slices=tuple(self.freed_slices),
        )

    def submit(self) -> Request:
        dice = self.dice
        id_ = f"r{self.count}"
        new = Request(
            id=id_,
            slice=dice.choice(["a", "b", id_, id_]),
            project="x",
            priority=dice.choice([50, 101, 201]),
            rank=self.count,
            node_count=dice.choice([1, 1, 1, 2]),
            gpus_per_node=dice.choice([0, 1, 2, 3]),
            length_s=dice.randint(2, 14),
            pools=dice.choice([("p",), ("p", "q"), ("q", "p")]),
            earliest_start_s=dice.choice([0, 0, 0, self.now_s + 6]),
        )
        self.count += 1
        self.queue += (new,)
        return new

    def _pool(self, id_: str, count: int) -> Pool:
        return Pool(id_, f"c{id_}", "s", tuple(Node(f"{id_}{i}", self.dice.choice([2, 4])) for i in range(count)))

    def end_boxes(self) -> None:
        for id_, end_s in list(self.real_end_s.items()):
            if end_s <= self.now_s:
                del self.real_end_s[id_]
                box = self.running.pop(id_)
                if self._expected_s(box) > self.now_s:
                    self._free(box.nodes, box.slice)

    def _expected_s(self, box: Running) -> int:
        """When the last plan thought that the box would be gone."""
        end_s = box.end_s
        while end_s <= self.last_tick_s:
            end_s += GRACE_S
        return end_s

    def _free(self, nodes: tuple[str, ...], slice_: str) -> None:
        self.is_freed = True
        self.freed_nodes += nodes
        self.freed_slices.append(slice_)

    def _cancel(self) -> None:
        if self.queue:
            gone = self.dice.choice(self.queue)
            self.queue = tuple(request for request in self.queue if request is not gone)
            self._free(gone.slot.nodes if gone.slot else (), gone.slice)

    def _edit(self) -> None:
        if not self.queue:
            return
        old = self.dice.choice(self.queue)
        change = self.dice.choice(["gpus", "count", "longer", "shorter"])
        new = {
            "gpus": replace(old, gpus_per_node=self.dice.choice([0, 1, 2])),
            "count": replace(old, node_count=self.dice.choice([1, 2])),
            "longer": replace(old, length_s=old.length_s + 3),
            "shorter": replace(old, length_s=max(1, old.length_s - 3)),
        }[change]
        self.queue = tuple(new if request is old else request for request in self.queue)
        self._free(old.slot.nodes if old.slot else (), old.slice)

    def _close(self) -> None:
        """A node closes for a while; what runs there goes on. Or it opens again before its time."""
        pool = self.dice.choice(self.pools)
        chosen = self.dice.choice(pool.nodes)
        start_s = self.now_s + self.dice.choice([0, 0, 4])
        closed = () if chosen.closed else (Window(start_s, start_s + self.dice.randint(2, 20)),)
        if chosen.closed:
            self._free((chosen.id,), "nobody")
        nodes = tuple(replace(node, closed=closed) if node is chosen else node for node in pool.nodes)
        self.pools = tuple(replace(p, nodes=nodes) if p is pool else p for p in self.pools)

    def _store(self, snapshot: Snapshot, made: Plan) -> None:
        self.is_freed, self.freed_nodes, self.freed_slices = False, [], []
        self.last_tick_s = self.now_s
        waiting = []
        for request, placement in zip(stored(snapshot, made), _in_queue_order(snapshot, made), strict=True):
            if placement.moved is not None:
                self.moves.setdefault(request.id, []).append(placement.moved)
            if request.promise_s is not None:
                self.first_promise_s.setdefault(request.id, request.promise_s)
            if placement.starts_now:
                self._start(request)
            elif placement.slot is not None or self.dice.random() < 0.3:  # most who can never start give up
                waiting.append(request)
        self.queue = tuple(waiting)

    def _start(self, request: Request) -> None:
        box = run(request)
        assert box.slice not in {other.slice for other in self.running.values()}
        self.running[request.id] = box
        self.started_s[request.id] = self.now_s
        late_s = self.dice.choice([0, 0, 0, 1, 7]) if "overrun" in self.mishaps else 0
        early_s = self.dice.choice([0, 0, 1, 6]) if "early" in self.mishaps else 0
        self.real_end_s[request.id] = max(self.now_s + 1, box.end_s + late_s - early_s)


def _in_queue_order(snapshot: Snapshot, made: Plan) -> list[Placement]:
    by_id = {placement.id: placement for placement in made.placements}
    return [by_id[request.id] for request in snapshot.queue]

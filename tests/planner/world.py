"""A small world that the planner rules: time passes, boxes end when they end, nodes close, people come and go.

It keeps what the allocator keeps (slots, promises, what is remembered) and knows what the planner doesn't: when boxes really end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.engine import plan
from planner.plan import Placement, Plan, PromiseMove
from planner.snapshot import Memory, Node, PlanPolicy, Pool, Request, Running, Snapshot, Window, Within
from tests.planner.build import GENEROUS, cut, ended, remembered, run, stored
from tests.planner.draw import ROOMY
from tests.planner.oracle import problems

# Ticks are missed, nodes close, are gone or in another rack, requests are canceled or edited, boxes end late or early.
MISHAPS = frozenset({"late", "close", "lose", "reseat", "cancel", "edit", "overrun", "early"})
# And the clock is set back: seconds that happen twice make the oracle slow.
BACK = "back"


@dataclass(frozen=True)
class Asks:
    """Each is as likely as another."""

    priorities: Sequence[int]
    node_counts: Sequence[int]
    lengths_s: Sequence[int]
    follow_share: float = 0.0  # how many start after another


MIXED = Asks(priorities=(50, 101, 201), node_counts=(1, 1, 1, 2), lengths_s=range(2, 15))
CHAINS = Asks(priorities=(50, 101, 201), node_counts=(1, 1, 2), lengths_s=range(2, 12), follow_share=0.6)
# So many and long that some wait until boxes that end early move them up: in forty worlds of sixty ticks about twenty.
GANGS = Asks(priorities=(50, 101), node_counts=(1, 2), lengths_s=range(6, 30))
# So many that some give way to others whose node has failed: in forty worlds of fifty ticks about eight.
SINGLES = Asks(priorities=(101,), node_counts=(1,), lengths_s=range(8, 30))


@dataclass
class World:
    """`policy`: by which the planner goes. `mishaps`: which troubles happen, of MISHAPS, or BACK. `asks`: what people ask for."""

    seed: int
    policy: PlanPolicy = ROOMY
    mishaps: frozenset[str] = frozenset()
    asks: Asks = MIXED
    now_s: int = 0
    pools: tuple[Pool, ...] = ()
    queue: tuple[Request, ...] = ()
    running: dict[str, Running] = field(default_factory=dict)
    real_end_s: dict[str, int] = field(default_factory=dict)
    moves: dict[str, list[PromiseMove]] = field(default_factory=dict)
    first_promise_s: dict[str, int] = field(default_factory=dict)
    started_s: dict[str, int] = field(default_factory=dict)
    memory: Memory = GENEROUS
    lost: list[tuple[str, Node]] = field(default_factory=list)
    count: int = 0
    has_freed: bool = False
    edited: list[str] = field(default_factory=list)
    just_edited: Request | None = None

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        sizes = self.dice.choice([(1,), (2,), (3,), (2, 2)])
        self.pools = tuple(self._pool("pq"[i], size) for i, size in enumerate(sizes))

    def step(self) -> tuple[Snapshot, Plan]:
        """One tick later: what happened meanwhile, the plan, and what it starts."""
        self.now_s += self.dice.choice([1, 2, 5, 9]) if "late" in self.mishaps else 1
        if BACK in self.mishaps and self.dice.random() < 0.15:
            self.now_s -= self.dice.choice([1, 3, 20])
        self.end_boxes()
        acts = {"close": self._close, "lose": self._lose, "reseat": self._reseat, "cancel": self._cancel, "edit": self._edit}
        for mishap, act in acts.items():
            if mishap in self.mishaps and self.dice.random() < 0.1:
                act()
        if self.dice.random() < 0.5:
            self.submit()
        return self.tick()

    def tick(self) -> tuple[Snapshot, Plan]:
        there = {*self.running, *(request.id for request in self.queue)}
        self.queue = tuple(replace(each, after="") if each.after and each.after not in there else each for each in self.queue)
        snapshot = self.snapshot()
        made = plan(snapshot)
        assert problems(snapshot, made) == []
        self._store(snapshot, made)
        return snapshot, made

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now_s=self.now_s,
            pools=self.pools,
            running=tuple(self.running.values()),
            queue=self.queue,
            policy=self.policy,
            memory=self.memory,
            has_freed=self.has_freed,
            edited=self.just_edited,
        )

    def submit(self) -> Request:
        dice = self.dice
        id_ = f"r{self.count}"
        wanted = dice.choice([("p",), ("p", "q"), ("q", "p")])
        new = Request(
            id=id_,
            slice=dice.choice(["a", "b", "", id_]),
            project="x",
            priority=dice.choice(self.asks.priorities),
            rank=self.count,
            node_count=dice.choice(self.asks.node_counts),
            gpus_per_node=dice.choice([0, 1, 2, 3]),
            length_s=dice.choice(self.asks.lengths_s),
            pools=wanted,
            earliest_start_s=dice.choice([0, 0, 0, self.now_s + 6]),
            handicaps=dice.choice([(), ((wanted[-1], dice.choice([4, 12])),)]),
            within=dice.choice([Within.ANY, Within.ANY, Within.ANY, Within.RACK, Within.NVLINK]),
        )
        self.count += 1
        others = [*self.running, *(request.id for request in self.queue)]
        if others and self.asks.follow_share and dice.random() < self.asks.follow_share:
            new = replace(new, after=dice.choice(others))
        self.queue += (new,)
        return new

    def _pool(self, id_: str, count: int) -> Pool:
        return Pool(id_, f"c{id_}", "s", tuple(self._node(f"{id_}{i}") for i in range(count)))

    def _node(self, id_: str) -> Node:
        return Node(id_, self.dice.choice([2, 4]), rack=self.dice.choice(["", "r", "s"]), nvlink_domain=self.dice.choice(["", "x"]))

    def end_boxes(self) -> None:
        for id_, end_s in list(self.real_end_s.items()):
            if end_s <= self.now_s:
                del self.real_end_s[id_]
                box = self.running.pop(id_)
                self.has_freed |= box.end_s > self.now_s
                ran_s, booked_s = self.now_s - self.started_s[id_], box.end_s - self.started_s[id_]
                self.memory = ended(self.memory, id_, now_s=self.now_s, ran_s=ran_s, booked_s=booked_s)

    def _cancel(self) -> None:
        if self.queue:
            gone = self.dice.choice(self.queue)
            self.queue = tuple(request for request in self.queue if request is not gone)
            self.memory = cut(self.memory, gone.id, now_s=self.now_s, ran_s=0)

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
        self.edited.append(old.id)
        self.just_edited = old if old.promise_s is not None else None
        self.queue = tuple(new if request is old else request for request in self.queue)

    def _close(self) -> None:
        """A node closes for a while, or opens again before its time; what runs there goes on."""
        if not any(pool.nodes for pool in self.pools):
            return
        pool = self.dice.choice([pool for pool in self.pools if pool.nodes])
        chosen = self.dice.choice(pool.nodes)
        start_s = self.now_s + self.dice.choice([0, 0, 4])
        closed = () if chosen.closed else (Window(start_s, start_s + self.dice.randint(2, 20)),)
        nodes = tuple(replace(node, closed=closed) if node is chosen else node for node in pool.nodes)
        self.pools = tuple(replace(p, nodes=nodes) if p is pool else p for p in self.pools)

    def _lose(self) -> None:
        """A node is gone, or comes back; what runs there goes on."""
        if self.lost:
            pool_id, node = self.lost.pop()
            self.pools = tuple(replace(p, nodes=(*p.nodes, node)) if p.id == pool_id else p for p in self.pools)
            return
        pool = self.dice.choice(self.pools)
        gone = self.dice.choice(pool.nodes)
        self.lost.append((pool.id, gone))
        nodes = tuple(node for node in pool.nodes if node is not gone)
        self.pools = tuple(replace(p, nodes=nodes) if p is pool else p for p in self.pools)

    def _reseat(self) -> None:
        """A node is reported in another rack or NVLink domain; what runs there goes on."""
        pool = self.dice.choice(self.pools)
        if not pool.nodes:
            return
        chosen, seat = self.dice.choice(pool.nodes), self._node("")
        moved = replace(chosen, rack=seat.rack, nvlink_domain=seat.nvlink_domain)
        nodes = tuple(moved if node is chosen else node for node in pool.nodes)
        self.pools = tuple(replace(p, nodes=nodes) if p is pool else p for p in self.pools)

    def freeze(self) -> None:
        """Nothing happens from now on but what the planner knows of."""
        self.mishaps = frozenset()
        for id_, box in self.running.items():
            end_s = box.end_s
            while end_s <= self.now_s:
                end_s += self.policy.overrun_grace_s
            self.real_end_s[id_] = end_s

    def pass_s(self, seconds: int = 1) -> tuple[Snapshot, Plan]:
        """Nobody comes; boxes end, and there is a tick."""
        self.now_s += seconds
        self.end_boxes()
        return self.tick()

    def _store(self, snapshot: Snapshot, made: Plan) -> None:
        self.has_freed, self.just_edited = False, None
        self.memory = remembered(snapshot, made)
        waiting = []
        for request, placement in zip(stored(snapshot, made), _in_queue_order(snapshot, made), strict=True):
            if placement.moved is not None:
                self.moves.setdefault(request.id, []).append(placement.moved)
            if has_gained(snapshot.edited, request):
                self.first_promise_s.pop(request.id, None)
                self.moves.pop(request.id, None)
            if request.promise_s is not None:
                self.first_promise_s.setdefault(request.id, request.promise_s)
            if placement.starts_now:
                self._start(request)
            elif placement.slot is not None or self.dice.random() < 0.3:  # most who can never start give up
                waiting.append(request)
        self.queue = tuple(waiting)

    def _start(self, request: Request) -> None:
        box = run(request)
        assert not box.slice or box.slice not in {other.slice for other in self.running.values()}
        self.running[request.id] = box
        self.started_s[request.id] = self.now_s
        late_s = self.dice.choice([0, 0, 0, 1, 7]) if "overrun" in self.mishaps else 0
        early_s = self.dice.choice([0, 0, 1, 6, request.length_s * 3 // 4]) if "early" in self.mishaps else 0
        self.real_end_s[request.id] = max(self.now_s + 1, box.end_s + late_s - early_s)


def has_gained(edited: Request | None, request: Request) -> bool:
    """Is it promised an earlier start by its owner's change?"""
    was_s, is_s = edited.promise_s if edited is not None and edited.id == request.id else None, request.promise_s
    return was_s is not None and is_s is not None and is_s < was_s


def _in_queue_order(snapshot: Snapshot, made: Plan) -> list[Placement]:
    by_id = {placement.id: placement for placement in made.placements}
    return [by_id[request.id] for request in snapshot.queue]

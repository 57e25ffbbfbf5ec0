"""The small world with all that tenants do to each other: projects with guarantees and ceilings that change, bookings, evictors, moves
by an administrator, other priorities, and boxes that are lengthened where that hurts nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from planner.causes import EvictionKind, victims_of
from planner.engine import plan
from planner.plan import Plan, harm_of
from planner.snapshot import Moved, Place, Quota, Request, Running, Snapshot
from tests.planner.oracle import problems
from tests.planner.world import World

DEEDS = frozenset({"quotas", "book", "evict", "move", "priority", "extend"})
PROJECTS = "ab"


@dataclass
class Tenants(World):
    """`deeds`: which of DEEDS are done."""

    deeds: frozenset[str] = frozenset()
    quotas: tuple[Quota, ...] = ()
    moved: Moved | None = None
    evicted: Counter[str] = field(default_factory=Counter)

    def step(self) -> tuple[Snapshot, Plan]:
        acts = {"quotas": self._set_quotas, "move": self._move, "priority": self._set_priority, "extend": self._extend}
        for deed, act in acts.items():
            if deed in self.deeds and self.dice.random() < 0.1:
                act()
        return super().step()

    def tick(self) -> tuple[Snapshot, Plan]:
        snapshot = self.snapshot()
        made = plan(snapshot)
        settled = with_ends(snapshot, made)
        assert [each for each in problems(settled, made) if "tightened" not in each] == []  # who is moved up, or claims, is promised more
        assert list(_above_ceilings(settled, made)) == []
        assert list(_unlawful(snapshot, made)) == []
        self.running = {box.id: box for box in settled.running}
        for victim in victims_of(made.evictions):
            self.evicted[victim.id] += 1
            self.real_end_s[victim.id] = min(self.real_end_s[victim.id], victim.frees_s)
        self.moved = None
        self._store(settled, made)
        return snapshot, made

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), quotas=self.quotas, moved=self.moved)

    def submit(self) -> Request:
        asked, dice = super().submit(), self.dice
        project = dice.choice([*PROJECTS, "c"])
        new = replace(asked, project=project, slice=dice.choice(["", f"{project}1", asked.id]), evictable=dice.random() < 0.7)
        if "evict" in self.deeds and dice.random() < 0.3:
            new = replace(new, may_evict=True)
        if "book" in self.deeds and dice.random() < 0.25:
            new = replace(new, is_fixed=True, earliest_start_s=self.now_s + dice.randint(1, 25), handicaps=())
        self.queue = (*self.queue[:-1], new)
        return new

    def _set_quotas(self) -> None:
        """Nobody is guaranteed what is not there."""
        left, made = sum(node.gpu_count for pool in self.pools for node in pool.nodes), []
        for project in PROJECTS:
            guaranteed = self.dice.randint(0, left)
            left -= guaranteed
            made.append(Quota(project, "s", guaranteed, self.dice.choice([None, None, guaranteed + self.dice.randint(0, 4)])))
        self.quotas = tuple(made)

    def _move(self) -> None:
        can = [request for request in self.queue if request.slot is not None and not request.is_fixed]
        if not can:
            return
        moved = self.dice.choice(can)
        before = [other for other in can if other.priority == moved.priority and other is not moved]
        behind = self.dice.choice(before) if before and self.dice.random() < 0.5 else None
        place, rank = (Place(1000, 0), 1000 + self.count) if behind else (Place(-1000, 0), -self.count)
        self.queue = tuple(replace(each, place=place, rank=rank) if each is moved else each for each in self.queue)
        self.moved = Moved(moved.id, behind.id if behind else "")

    def _set_priority(self) -> None:
        if self.queue:
            chosen, priority = self.dice.choice(self.queue), self.dice.choice([50, 101, 201])
            self.queue = tuple(replace(each, priority=priority) if each is chosen else each for each in self.queue)

    def _extend(self) -> None:
        """Extends it as the product does: only if nobody is worse off."""
        snapshot = self.snapshot()
        if not self.running or self.moved or self.just_edited:
            return  # each of these is planned at once
        box = self.running[self.dice.choice(sorted(self.running))]
        longer = replace(box, end_s=box.end_s + 4)
        running = tuple(longer if each is box else each for each in snapshot.running)
        if harm_of(plan(snapshot), plan(replace(snapshot, running=running))) is None:
            self.running[box.id] = longer
            self.real_end_s[box.id] = max(self.real_end_s[box.id], longer.end_s)


def with_ends(snapshot: Snapshot, made: Plan) -> Snapshot:
    """Returns it as it is once those who are evicted have been told."""
    ends_s = {victim.id: victim.frees_s for victim in victims_of(made.evictions)}
    return replace(snapshot, running=tuple(replace(box, end_s=ends_s.get(box.id, box.end_s)) for box in snapshot.running))


def _unlawful(snapshot: Snapshot, made: Plan) -> Iterator[str]:
    """Ends without notice or before the least run, that gain nothing, or by priority for one that may not or of one that must not."""
    requests, boxes = {request.id: request for request in snapshot.queue}, {box.id: box for box in snapshot.running}
    policy = snapshot.policy
    for eviction in made.evictions:
        whose = requests[eviction.id]
        for victim in eviction.victims:
            box = boxes[victim.id]
            soonest_s = max(snapshot.now_s + policy.notice_s, box.started_s + policy.least_run_s) + policy.exit_s
            if not soonest_s <= victim.frees_s < box.end_s:
                yield f"{box.id} ends at {victim.frees_s} instead of {box.end_s}, and has a right to {soonest_s}"
            if victim.kind == EvictionKind.PRIORITY and not (whose.may_evict and box.evictable and box.priority < whose.priority):
                yield f"{box.id} ends for {whose.id}, which has no right to that"


def _above_ceilings(snapshot: Snapshot, made: Plan) -> Iterator[str]:
    """Checks second by second and names requests that stand beside more than their project may hold.

    Running boxes may be above a later ceiling.
    """
    sizes = {node.id: node.gpu_count for pool in snapshot.pools for node in pool.nodes}
    requests = {request.id: request for request in snapshot.queue}
    stays = [(box, _gpus(box, sizes), range(snapshot.now_s, box.end_s)) for box in snapshot.running]
    new: list[tuple[Request, int, range]] = []
    for placement in made.placements:
        if placement.slot is not None:
            asked, start_s = requests[placement.id], placement.slot.start_s
            gpus = sum(asked.gpus_per_node or sizes[node] for node in placement.slot.nodes)
            new.append((asked, gpus, range(start_s, start_s + asked.length_s)))
    for quota in snapshot.quotas:
        for _, _, seconds in (each for each in new if each[0].project == quota.owner):
            held = max(
                sum(
                    gpus
                    for box, gpus, when in chain[tuple[Running | Request, int, range]](stays, new)
                    if box.project == quota.owner and at_s in when
                )
                for at_s in seconds
            )
            if quota.most is not None and held > quota.most:
                yield f"{quota.owner} would hold {held} of {quota.most}"


def _gpus(box: Running, sizes: dict[str, int]) -> int:
    return sum(box.gpus_per_node or sizes[node] for node in box.nodes if node in sizes)

"""A small world in which everybody may evict, for bookings as well: it comes to rest, after few evictions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from planner.engine import plan
from planner.plan import Plan
from planner.snapshot import Node, PlanPolicy, Pool, Quota, Request, Running, SlackSettings, Snapshot
from tests.effort import examples

NOTICE_S, LEAST_RUN_S = 2, 3
POLICY = PlanPolicy(notice_s=NOTICE_S, least_run_s=LEAST_RUN_S, eviction_gain_s=1, slack=SlackSettings(of_length=0.0))
LAST_ARRIVAL_S = 20


@dataclass
class World:
    """It ticks every second. An evicted box waits again with the time that is left, at its old age."""

    pool: Pool
    quotas: tuple[Quota, ...]
    arrivals: dict[int, list[Request]]
    now_s: int = 0
    queue: dict[str, Request] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    asked: dict[str, Request] = field(default_factory=dict)
    left_s: dict[str, int] = field(default_factory=dict)
    evicted_for: list[tuple[str, str]] = field(default_factory=list)
    ends_early: set[str] = field(default_factory=set)

    def tick(self) -> None:
        for id_, box in list(self.running.items()):
            if box.end_s <= self.now_s:
                self._end(id_)
        for request in self.arrivals.pop(self.now_s, []):
            self.queue[request.id] = self.asked[request.id] = request
            self.left_s[request.id] = request.length_s
        made = plan(
            Snapshot(self.now_s, (self.pool,), tuple(self.running.values()), tuple(self.queue.values()), POLICY, quotas=self.quotas)
        )
        self._evict(made)
        for placement in made.placements:
            assert placement.moved is None or placement.moved.cause == "reclaim"
            request = replace(self.queue[placement.id], slot=placement.slot, promise_s=placement.promise_s)
            self.queue[placement.id] = request
            if placement.slot is None:
                self._refuse(request)
            elif placement.starts_now:
                self._start(request)
        self.now_s += 1

    @property
    def is_at_rest(self) -> bool:
        return not self.queue and not self.running and not self.arrivals

    def _evict(self, made: Plan) -> None:
        for eviction in made.evictions:
            for victim in eviction.victims:
                self.evicted_for.append((victim.id, eviction.id))
                self.ends_early.add(victim.id)
                self.running[victim.id] = replace(self.running[victim.id], end_s=victim.frees_s)

    def _refuse(self, request: Request) -> None:
        """A booking, when it comes, and at no other time."""
        assert request.is_fixed
        assert request.promise_s is None
        del self.queue[request.id]
        self.left_s[request.id] = 0

    def _start(self, request: Request) -> None:
        assert request.slot is not None
        assert not request.is_fixed or request.earliest_start_s == self.now_s
        del self.queue[request.id]
        end_s = self.now_s + request.length_s
        whose = request.id, request.slice, request.project, request.priority, request.slot.pool, request.slot.nodes
        self.running[request.id] = Running(*whose, request.gpus_per_node, end_s, self.now_s, request.evictable)

    def _end(self, id_: str) -> None:
        box = self.running.pop(id_)
        self.left_s[id_] -= self.now_s - box.started_s
        if self.left_s[id_] > 0:
            assert id_ in self.ends_early
            self.queue[id_] = replace(self.asked[id_], length_s=self.left_s[id_], is_fixed=False)
        self.ends_early.discard(id_)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    count = draw(st.integers(2, 7))
    arrivals: dict[int, list[Request]] = {}
    for i in range(count):
        at_s, is_fixed = draw(st.integers(0, LAST_ARRIVAL_S)), draw(st.sampled_from([False, False, True]))
        request = Request(
            id=f"r{i}",
            slice=draw(st.sampled_from(["a", "b", "c", f"own {i}"])),
            project=draw(st.sampled_from("xyz")),
            priority=draw(st.sampled_from([50, 101, 201])),
            rank=i,
            node_count=draw(st.sampled_from([1, 1, 2])),
            gpus_per_node=draw(st.sampled_from([0, 1, 2])),
            length_s=draw(st.integers(1, 25)),
            pools=("p",),
            earliest_start_s=at_s + draw(st.integers(0, 12)) if is_fixed else 0,
            is_fixed=is_fixed,
            may_evict=draw(st.booleans()),
            evictable=draw(st.sampled_from([True, True, False])),
        )
        arrivals.setdefault(at_s, []).append(request)
    owners = draw(st.sets(st.sampled_from("xyzab")))
    quotas = tuple(Quota(owner, "s", draw(st.integers(0, 4))) for owner in sorted(owners))
    nodes = tuple(Node(f"n{i}", 2) for i in range(draw(st.integers(2, 3))))
    return World(Pool("p", "c", "s", nodes), quotas, arrivals)


@examples(150)
@given(worlds())
def test_evictions_never_go_in_a_circle_and_everybody_has_its_time(world: World) -> None:
    work_s = sum(request.length_s for requests in world.arrivals.values() for request in requests)
    while not world.is_at_rest:
        world.tick()
        assert world.now_s < LAST_ARRIVAL_S + 4 * work_s + 100, "it never comes to rest"

    assert len(world.evicted_for) <= len(world.asked) ** 2
    assert all(left_s == 0 for left_s in world.left_s.values())

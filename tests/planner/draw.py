"""These strategies draw small random snapshots."""

from __future__ import annotations

from hypothesis import strategies as st

from planner.snapshot import Node, PlanPolicy, PolicyName, Pool, Request, Running, SlackSettings, Snapshot, Window
from tests.planner.build import GENEROUS

GRACE_S = 3
NOW_S = 100
# With and without slack, so that slots lie at the earliest start and behind it.
CONSERVATIVE = PlanPolicy(PolicyName.CONSERVATIVE, overrun_grace_s=GRACE_S)
TIGHT = PlanPolicy(PolicyName.GUARDED, overrun_grace_s=GRACE_S, slack=SlackSettings(of_length=0.0))
ROOMY = PlanPolicy(PolicyName.GUARDED, overrun_grace_s=GRACE_S, slack=SlackSettings(of_length=3.0, most_of_patient=8.0, most_of_strict=8.0))
GUARDED = (TIGHT, ROOMY)
POLICIES = (CONSERVATIVE, *GUARDED)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, ...]:
    """Draws one or two pools with four nodes in all."""
    sizes = draw(st.sampled_from([(1,), (2,), (3,), (4,), (1, 2), (2, 2)]))
    return tuple(_pool(draw, "pq"[i], count) for i, count in enumerate(sizes))


def _pool(draw: st.DrawFn, id_: str, count: int) -> Pool:
    gpus = draw(st.sampled_from([2, 4]))
    return Pool(id_, f"c{id_}", "s", tuple(Node(f"{id_}{i}", gpus, draw(windows())) for i in range(count)))


@st.composite
def windows(draw: st.DrawFn) -> tuple[Window, ...]:
    if draw(st.integers(0, 5)):
        return ()
    start_s = NOW_S + draw(st.integers(-3, 12))
    return (Window(start_s, start_s + draw(st.integers(1, 8))),)


@st.composite
def requests(draw: st.DrawFn, id_: str, rank: int) -> Request:
    return Request(
        id=id_,
        slice=draw(st.sampled_from(["a", "b", "", id_])),
        project="x",
        priority=draw(st.sampled_from([50, 101, 201])),
        rank=rank,
        node_count=draw(st.sampled_from([1, 1, 1, 2, 3])),
        gpus_per_node=draw(st.sampled_from([0, 1, 1, 2, 3])),
        length_s=draw(st.integers(1, 7)),
        pools=draw(st.sampled_from([("p",), ("p", "q"), ("q", "p")])),
        earliest_start_s=draw(st.sampled_from([0, 0, 0, NOW_S + 4])),
        share=draw(st.sampled_from([0, 0, 0, 1])),
    )


@st.composite
def running(draw: st.DrawFn, of_pools: tuple[Pool, ...]) -> tuple[Running, ...]:
    """Draws at most two boxes that fit together on each node; now and then one is overdue or spans two nodes."""
    boxes: list[Running] = []
    for pool in of_pools:
        for node in pool.nodes:
            for k in range(draw(st.integers(0, 2))):
                gpus = node.gpu_count // 2
                end_s = NOW_S + draw(st.integers(-2, 9))
                id_ = f"run-{node.id}-{k}"
                boxes.append(Running(id_, id_, "x", 101, pool.id, (node.id,), gpus, end_s))
    return tuple(boxes)


@st.composite
def snapshots(draw: st.DrawFn, *, most: int = 5, policies: tuple[PlanPolicy, ...] = POLICIES) -> Snapshot:
    of_pools = draw(pools())
    queue = tuple(draw(requests(f"r{i}", i)) for i in range(draw(st.integers(1, most))))
    return Snapshot(
        now_s=NOW_S,
        pools=of_pools,
        running=draw(running(of_pools)),
        queue=queue,
        policy=draw(st.sampled_from(policies)),
        memory=GENEROUS,
    )

"""Measures the end-to-end half of `speed`: the services on PostgreSQL and Redis, submits from several processes, a tick as in production.

HTTP and a real agent are not in it. A fake agent says that nodes are open, through the hub's own side of the protocol.
`python -m bench.hub.speed_hub CASE` measures; `submit FIRST COUNT` is one of those who submit.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.figures import Figure
from bench.hub.own_hub import migrated_database, tell
from bench.hub.world import ENTRY, EXIT, agent_says, cluster_made, queue_made, slices_made, statistics_renewed
from protocol.nodes.inventory import GpuView, NodeView

if TYPE_CHECKING:
    from gpr.models import Gpr
    from tests.inventory.agent import Agent

SHAPE: Final = "H100-80GB"
GPUS: Final = 8
RATE_NODES, RATE_SUBMITS = 64, 240
FILL_THREADS = 16
FILL_NODES = 500
GANG_NODES = 512
DEEP_NODES, DEEP_QUEUE = 1_213, 3_000
INVENTORY_NODES = 1_000
BOXES = 400
END_TO_END: Final = "end to end on PostgreSQL"
FILL_WITHIN_S: Final = 600
KAI_GANG_S, KAI_FILL_S = 48.7, 397.8
# Measured on two cores, on another run.
FILL_HERE_S: Final = {"KAI": 143.7, "kube-scheduler": 82.6}
SBATCH_PER_S = 231.0
SLURM_PLANNED_PER_S = 1_306 / 4.0


def main() -> None:
    case, *numbers = sys.argv[1], *map(int, sys.argv[2:])
    if case == "submit":
        _submit(*numbers)
        return
    with migrated_database():
        tell(CASES[case](*numbers))


@dataclass(slots=True)
class World:
    """Makes one cluster, and workspaces enough for one box each."""

    admin: Any
    cluster: Any
    slices: list[Any]
    agent: Agent


def world_made(*, nodes: int, slices: int) -> World:
    from accounts.models import PlatformRole
    from accounts.people.services import user_create
    from core.clock import db_now

    now = db_now()
    admin = user_create(name="root", role=PlatformRole.ADMIN, now=now)
    cluster, agent = cluster_made("aurora", shape=SHAPE, node_count=nodes, gpus=GPUS, now=now)
    _, made = slices_made("p", slices, cluster, now=now, nodes_approval=nodes, gpus_approval=nodes * GPUS)
    statistics_renewed()
    return World(admin, cluster, made, agent)


def whole(world: World, slice_: Any, nodes: int) -> Gpr:
    """Submits a gang of whole nodes."""
    from core.clock import db_now
    from gpr.requests.services import gpr_submit
    from gpr.requests.spec import GprSpec

    spec = GprSpec(name="gang", slice=slice_, nodes=nodes, duration_s=86_400, shape=SHAPE)
    return gpr_submit(actor=world.admin, spec=spec, now=db_now())


def tick(world: World) -> None:
    """Ticks after an agent has just been heard."""
    from core.clock import db_now
    from gpr.allocation.allocator import tick
    from inventory.models import AgentSession

    AgentSession.objects.filter(cluster=world.cluster).update(last_sync_at=db_now() + timedelta(minutes=10))
    if tick() is None:
        raise RuntimeError("somebody else ticks")


def _opened(world: World) -> None:
    """The agent reports that all held nodes are open."""
    from core.clock import db_now
    from inventory.models import Reservation, ReservationState

    rows = list(Reservation.objects.filter(state=ReservationState.HELD, active_at=None))
    agent_says(world.agent, rows, ENTRY, now=db_now())


def _count(*states: str) -> int:
    from gpr.models import Gpr

    return Gpr.objects.filter(state__in=states).count()


# The cases.


def _rate(processes: int, threads: int) -> list[Figure]:
    """Measures on a full cluster, so that all requests wait. Each process files with `threads` at once, as a web process does."""
    world = world_made(nodes=RATE_NODES, slices=RATE_SUBMITS + 1)
    whole(world, world.slices[-1], RATE_NODES)
    tick(world)
    submitters = ready_submitters(RATE_SUBMITS, processes, threads)
    began = time.perf_counter()
    go(submitters)
    cpu_s = sum(_cpu_s(each) for each in submitters)
    rate = RATE_SUBMITS / (time.perf_counter() - began)
    case = f"{END_TO_END}: submits, {processes} x {threads} at once, up to {RATE_SUBMITS} queued"
    return [
        Figure("speed", case, "/s", rate, "sbatch, another run", SBATCH_PER_S, ">= 250"),
        Figure("speed", f"{case}: CPU time of one, without the database's", "s", cpu_s / RATE_SUBMITS),
    ]


def _gang() -> list[Figure]:
    from gpr.models import GprState

    world = world_made(nodes=GANG_NODES, slices=1)
    began = time.perf_counter()
    whole(world, world.slices[0], GANG_NODES)
    tick(world)
    held_s = time.perf_counter() - began
    _opened(world)
    tick(world)
    open_s = time.perf_counter() - began
    if not _count(GprState.ACTIVE):
        raise RuntimeError("the gang is not active")
    what = f"{END_TO_END}: a gang of {GANG_NODES} whole nodes"
    return [
        Figure("speed", f"{what}, until all are reserved", "s", held_s, "KAI published, 512 pods bound", KAI_GANG_S),
        Figure("speed", f"{what}, until it is active, agent answering at once", "s", open_s),
    ]


def _deep() -> list[Figure]:
    """The planner sees the whole queue for the first time."""
    from gpr.models import GprState, Promise

    world = world_made(nodes=DEEP_NODES, slices=DEEP_QUEUE + 1)
    whole(world, world.slices[-1], DEEP_NODES)
    tick(world)
    queue_made(world.slices[:DEEP_QUEUE], owner=world.admin, shape=SHAPE, nodes_most=16)
    new_s, again_s = (_seconds_of_tick(world) for _ in range(2))
    planned = Promise.objects.filter(gpr__state=GprState.QUEUED).count()
    what = f"{END_TO_END}: {DEEP_QUEUE:,} queued on {DEEP_NODES:,} full nodes"
    peer = "Slurm's backfill, another run"
    return [
        Figure("speed", f"{what}, planned by a tick", "", planned, peer, 1_306),
        Figure("speed", f"{what}, the tick that plans them all", "s", new_s, peer, 4.0),
        Figure("speed", f"{what}, planned", "jobs/s", planned / new_s, peer, SLURM_PLANNED_PER_S),
        Figure("speed", f"{what}, the next tick", "s", again_s),
    ]


def _seconds_of_tick(world: World) -> float:
    began = time.perf_counter()
    tick(world)
    return time.perf_counter() - began


def _fill() -> list[Figure]:
    """Two processes with FILL_THREADS each submit while this one ticks, as in production; it gives up in the end."""
    from gpr.models import GprState

    count = FILL_NODES * GPUS
    world = world_made(nodes=FILL_NODES, slices=count)
    submitters = ready_submitters(count, 2, FILL_THREADS)
    began = time.perf_counter()
    go(submitters)
    while (held := _count(GprState.PROVISIONING)) < count and time.perf_counter() - began < FILL_WITHIN_S:
        tick(world)
    held_s = time.perf_counter() - began
    what = f"{END_TO_END}: {FILL_NODES} x {GPUS} GPUs filled by {count:,} requests for one"
    if held < count:
        for each in submitters:
            each.terminate()
            each.wait()
        return [
            Figure("speed", f"{what}: given up, reserved after {held_s:,.0f} s", "", held, goal=f"{count}"),
            Figure("speed", f"{what}: reserved until then", "/s", held / held_s, "KAI published, until bound", count / KAI_FILL_S),
        ]
    _opened(world)
    tick(world)
    open_s = time.perf_counter() - began
    if _count(GprState.ACTIVE) != count:
        raise RuntimeError(f"{_count(GprState.ACTIVE)} of {count} are active")
    peers = {
        "KAI published, until bound": KAI_FILL_S,
        **{f"{name}, two cores, another run": took_s for name, took_s in FILL_HERE_S.items()},
    }
    return [
        *(Figure("speed", f"{what}, until all are reserved", "s", held_s, peer, took_s) for peer, took_s in peers.items()),
        Figure("speed", f"{what}, until all are active, agent answering at once", "s", open_s),
    ]


def _boxes() -> list[Figure]:
    """The whole life of many boxes that start and end together: what one costs this process in each tick, and in statements."""
    from django.db import connection

    from core.clock import db_now
    from gpr.models import Gpr, GprState
    from gpr.requests.services import gprs_submit
    from gpr.requests.spec import GprSpec
    from inventory.models import Reservation

    _warm_up()
    world = world_made(nodes=BOXES // GPUS, slices=BOXES)
    asks: dict[str, Any] = {"nodes": 1, "gpus_per_node": 1, "duration_s": 86_400, "shape": SHAPE}
    gprs_submit(actor=world.admin, specs=[GprSpec(name="box", slice=slice_, **asks) for slice_ in world.slices], now=db_now())

    def ticked(case: str, state: GprState) -> list[Figure]:
        statements: list[str] = []

        def counted(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            statements.append(sql)
            return execute(sql, *rest)

        with connection.execute_wrapper(counted):
            began_s = time.process_time()
            tick(world)
            cpu_s = time.process_time() - began_s
        if _count(state) != BOXES:
            raise RuntimeError(f"{_count(state)} of {BOXES} are {state}")
        what = f"{BOXES} boxes {case} in one tick, each"
        return [
            Figure("boxes", f"{what}: CPU", "ms", cpu_s / BOXES * 1000),
            Figure("boxes", f"{what}: statements", "", len(statements) / BOXES),
        ]

    figures = ticked("start", GprState.PROVISIONING)
    _opened(world)
    figures += ticked("become active", GprState.ACTIVE)
    over_at = db_now() - timedelta(seconds=1)
    Gpr.objects.update(active_at=over_at - timedelta(days=1), ends_at=over_at)
    figures += ticked("end", GprState.EXITING)
    agent_says(world.agent, list(Reservation.objects.all()), EXIT, now=db_now())
    return [*figures, *ticked("are settled", GprState.COMPLETED)]


def _inventory() -> list[Figure]:
    """Reports the whole inventory though one node has changed, as an agent does."""
    from core.clock import db_now
    from inventory.services.clusters import cluster_create
    from inventory.services.inventory import inventory_store

    cluster = cluster_create(name="aurora", actor=None, now=db_now())
    views = [_node_view(number) for number in range(INVENTORY_NODES)]
    changed = [msgspec.structs.replace(views[0], ready=False), *views[1:]]
    figures = []
    for what, report in (("all new", views), ("one is not ready any more", changed), ("as before", changed)):
        began = time.perf_counter()
        inventory_store(cluster=cluster, nodes=report, now=db_now())
        seconds = time.perf_counter() - began
        figures.append(Figure("speed", f"{END_TO_END}: an inventory of {INVENTORY_NODES:,} x {GPUS} GPUs stored, {what}", "s", seconds))
    return figures


def _node_view(number: int) -> NodeView:
    gpus = tuple(GpuView(uuid=f"GPU-{number}-{index}", index=index, model="H100", memory_gib=80) for index in range(GPUS))
    return NodeView(name=f"n{number}", uid=f"uid-{number}", shape=SHAPE, node_type="hgx", gpus=gpus)


CASES: Final[dict[str, Callable[..., list[Figure]]]] = {
    "rate": _rate,
    "gang": _gang,
    "deep": _deep,
    "fill": _fill,
    "inventory": _inventory,
    "boxes": _boxes,
}


# The processes that submit.


def ready_submitters(count: int, processes: int, threads: int) -> list[subprocess.Popen[str]]:
    """They are ready, and wait for the signal."""
    share = count // processes
    command = [sys.executable, "-m", "bench.hub.speed_hub", "submit"]
    submitters = [
        subprocess.Popen([*command, str(i * share), str(share), str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    for each in submitters:
        if each.stdout is None or each.stdout.readline() != "ready\n":
            raise RuntimeError("a process that submits did not come up")
    return submitters


def go(submitters: list[subprocess.Popen[str]]) -> None:
    for each in submitters:
        if each.stdin is not None:
            each.stdin.write("go\n")
            each.stdin.flush()


def _cpu_s(submitter: subprocess.Popen[str]) -> float:
    """Waits for its end and returns the CPU time of its submits."""
    told, _ = submitter.communicate()
    if submitter.returncode:
        raise RuntimeError("a process that submits failed")
    return float(told)


def _submit(first: int, count: int, threads: int) -> None:
    """Submits one GPU for each of these workspaces. The threads share connections, as a web process's do."""
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import closing
    from threading import Barrier

    import django

    django.setup()
    from django.db import connection

    from accounts.models import User
    from core.clock import db_now
    from egs.runner import close_pool, share_connections
    from gpr.requests.services import gpr_submit
    from gpr.requests.spec import GprSpec
    from slices.models import Slice

    actor = User.objects.get(name="root")
    slices = list(Slice.objects.order_by("name")[first : first + count])
    _warm_up()
    share_connections()
    all_are_there = Barrier(threads)

    def connect(_: int) -> None:
        with closing(connection):
            db_now()
        all_are_there.wait()

    def submit(slice_: Slice) -> None:
        spec = GprSpec(name="box", slice=slice_, nodes=1, gpus_per_node=1, duration_s=86_400, shape=SHAPE)
        with closing(connection):
            gpr_submit(actor=actor, spec=spec, now=db_now())

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(connect, range(threads)))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        began_s = time.process_time()
        list(pool.map(submit, slices))
        took_s = time.process_time() - began_s
    close_pool()
    sys.stdout.write(f"{took_s}\n")


def _warm_up() -> None:
    """Loads the compiled functions, so that the measured time has none of it."""
    from planner.engine import plan
    from planner.snapshot import Node, Pool, Request, Snapshot

    pools = (Pool("p", "c", "s", (Node("n", GPUS),)),)
    queue = tuple(Request(f"q{i}", f"q{i}", "p", 101, i, 1, GPUS, 600, ("p",)) for i in range(3))
    plan(Snapshot(now_s=0, pools=pools, queue=queue))


if __name__ == "__main__":
    main()

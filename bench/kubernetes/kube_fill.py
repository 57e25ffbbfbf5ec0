"""Fills a cluster by requests for one GPU each, on a real API server: from the first to the last pod on a node.

Ours through the whole product; beside it kube-scheduler alone on the same nodes and as many pods, and KAI (bench/peers/kai.py).
`python -m bench.kubernetes.kube_fill KUBECONFIG NODES` is the half that has a hub: web
processes, workers and an agent of its own, on PostgreSQL and Redis.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure, NotRun
from bench.hub.own_hub import figures_from, migrated_database, tell
from bench.hub.speed_hub import FILL_HERE_S, FILL_NODES, FILL_THREADS, GPUS, go, ready_submitters
from bench.peers import kai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.processes import Api
    from tests.kube.cluster import Cluster
    from worker_agent.kube.api.client import Api as KubeApi

NODES = 125
WRITERS: Final = 32
LOOK_S: Final = 0.5
WITHIN_S: Final = 1_800.0
CLUSTER: Final = "filled"
NAMESPACE: Final = "bench"
GOAL_S: Final = 60


def run(traces: Path | None) -> list[Figure]:
    return _run(NODES)


def run_all_nodes(traces: Path | None) -> list[Figure]:
    return _run(FILL_NODES)


def _run(nodes: int) -> list[Figure]:
    from tests.kube.cluster import KubeError, clusters

    try:
        with clusters("bench") as (cluster,):
            alone_s = _filled_alone(cluster, nodes)
        name, kai_s = _kai_filled(nodes)
        with clusters("bench") as (cluster,):
            figures = figures_from("bench.kubernetes.kube_fill", str(cluster.kubeconfig), str(nodes), with_redis=True)
    except KubeError as error:
        raise NotRun(str(error)) from error
    bound_s = figures[0].ours
    what = "from the first request until all pods have a node"
    return [
        _figure(nodes, what, bound_s, "kube-scheduler alone, same run", alone_s, f"<= {GOAL_S} s" if nodes == FILL_NODES else ""),
        *([_figure(nodes, what, bound_s, name, kai_s)] if kai_s is not None else []),
        *figures[1:],
    ]


def _figure(nodes: int, what: str, ours: float, peer: str = "", theirs: float | None = None, goal: str = "") -> Figure:
    return Figure("kube-fill", f"{nodes} x {GPUS} GPUs, {nodes * GPUS:,} requests for one: {what}", "s", ours, peer, theirs, goal)


# -- the peers ---------------------------------------------------------------------------------------------------------


def _kai_filled(nodes: int) -> tuple[str, float | None]:
    """Returns its name and its seconds. Where `KAI_SRC` names no checkout, these are of another run, if that measured it."""
    from tests.kube.cluster import clusters

    if not os.environ.get("KAI_SRC"):
        return "KAI, two cores, another run", FILL_HERE_S["KAI"] if nodes == FILL_NODES else None
    with clusters("bench") as (cluster,), tempfile.TemporaryDirectory() as folder, kai.running(cluster, Path(folder)):
        return "KAI, same run", _filled_alone(cluster, nodes, {"labels": kai.LABELS}, schedulerName=kai.SCHEDULER)


def _filled_alone(cluster: Cluster, nodes: int, metadata: dict[str, Any] | None = None, **spec: str) -> float:
    """Returns the seconds from the first pod made to the last one on a node, by a scheduler alone."""
    from tests.e2e.kubernetes import managed_nodes

    api = _api(cluster)
    cluster.make_namespace(NAMESPACE)
    pods = [_pod(f"pod-{number}", metadata, **spec) for number in range(nodes * GPUS)]
    with ThreadPoolExecutor(WRITERS) as writers:
        _make_all(writers, api, "/api/v1/nodes", managed_nodes(CLUSTER, nodes))
        with _bound_pods(api) as bound:
            _wait("the nodes are ready", lambda: cluster.kubectl("get", "nodes", "--output", "name").count("\n") == nodes)
            began = time.monotonic()
            _make_all(writers, api, f"/api/v1/namespaces/{NAMESPACE}/pods", pods)
            _wait("all pods have a node", lambda: bound() == nodes * GPUS)
            return time.monotonic() - began


# -- the product -------------------------------------------------------------------------------------------------------


def main(kubeconfig: str, nodes: str) -> None:
    from tests.kube.cluster import Cluster, programs

    with migrated_database(), tempfile.TemporaryDirectory() as folder:
        tell(_filled(Cluster(Path(kubeconfig), programs()), Path(folder), int(nodes)))


def _filled(cluster: Cluster, folder: Path, nodes: int) -> list[Figure]:
    from gpr.models import GprState

    stage, count, who = _stage(folder), nodes * GPUS, []
    try:
        root = stage.start()
        began = time.monotonic()
        names = _world_made(stage, root, cluster, nodes)
        made_s = time.monotonic() - began
        who = ready_submitters(count, 2, FILL_THREADS)
        api = _api(cluster)
        reserved_s = active_s = None
        with ThreadPoolExecutor(WRITERS) as writers, _bound_pods(api) as bound:
            began = time.monotonic()
            go(who)
            made = [writers.submit(_make, api, f"/api/v1/namespaces/{name}/pods", _pod("train")) for name in names]
            while bound() < count or active_s is None:
                _raise_faults(made)
                now_s = time.monotonic() - began
                by_state = _by_state()
                if reserved_s is None and by_state.get(GprState.PROVISIONING, 0) + by_state.get(GprState.ACTIVE, 0) == count:
                    reserved_s = now_s
                if active_s is None and by_state.get(GprState.ACTIVE, 0) == count:
                    active_s = now_s
                if now_s > WITHIN_S:
                    raise NotRun(f"{bound()} of {count} pods have a node after {now_s:.0f} s; by state: {by_state}")
                time.sleep(LOOK_S)
            bound_s = time.monotonic() - began
    finally:
        for each in who:
            each.kill()
        stage.stop()
    return [
        _figure(nodes, "until all pods have a node", bound_s),
        _figure(nodes, "until all are reserved", reserved_s or active_s),
        _figure(nodes, "until all are ACTIVE", active_s),
        _figure(nodes, f"beforehand: {nodes} nodes taken in, {count:,} workspaces with a namespace each", made_s),
    ]


def _raise_faults(calls: Iterable[Future[None]]) -> None:
    """Without this the benchmark would wait in vain for a pod that could not be made."""
    for call in calls:
        if call.done():
            call.result()


def _by_state() -> dict[str, int]:
    from django.db.models import Count

    from gpr.models import Gpr

    return dict(Gpr.objects.values_list("state").annotate(Count("id")).order_by())


def _stage(folder: Path) -> Any:
    from tests.e2e.kubernetes import KubernetesStage
    from tests.e2e.processes import ProductionStage

    class Stage(ProductionStage, KubernetesStage):
        """Runs the production processes on the cluster."""

    return Stage(folder, database_url=os.environ["EGS_DATABASE_URL"], redis_url=os.environ["EGS_REDIS_URL"])


def _world_made(stage: Any, root: Api, cluster: Cluster, nodes: int) -> list[str]:
    """Waits until the agent took in the nodes and made a namespace for each workspace. Returns the names of these."""
    from bench.hub.world import slices_made, statistics_renewed
    from core.clock import db_now
    from inventory.models import CheckPolicy, Node
    from inventory.models import Cluster as ClusterRow
    from protocol.nodes.steps import EntryStep
    from protocol.tenancy.workspaces import BindingState
    from slices.models import Namespace
    from tests.e2e.kubernetes import managed_nodes

    stage.installed_cluster(root, CLUSTER, cluster)
    row, now = ClusterRow.objects.get(name=CLUSTER), db_now()
    CheckPolicy.objects.create(cluster=row, skipped_steps=list(EntryStep), created_at=now)
    _, slices = slices_made("p", nodes * GPUS, row, now=now)
    Namespace.objects.bulk_create(Namespace(slice=slice_, cluster=row, name=slice_.name, created_at=now) for slice_ in slices)
    with ThreadPoolExecutor(WRITERS) as writers:
        _make_all(writers, _api(cluster), "/api/v1/nodes", managed_nodes(CLUSTER, nodes))
    stage.start_replica(CLUSTER, CLUSTER)
    _wait("the nodes are taken in", lambda: Node.objects.filter(cluster=row).count() == nodes)
    _wait("the namespaces are bound", lambda: Namespace.objects.filter(state=BindingState.READY).count() == nodes * GPUS)
    api, names = _api(cluster), [slice_.name for slice_ in slices]
    _wait("they have service accounts", lambda: all(_has_account(api, name) for name in names))
    statistics_renewed()
    return names


# -- the cluster -------------------------------------------------------------------------------------------------------


def _api(cluster: Cluster) -> KubeApi:
    from worker_agent.kube.api.client import Api, access_by_kubeconfig

    return Api(access_by_kubeconfig(cluster.kubeconfig))


def _has_account(api: KubeApi, namespace: str) -> bool:
    """No pod can be made there without its default account."""
    import msgspec

    from worker_agent.kube.api.client import Missing

    try:
        api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", msgspec.Raw)
    except Missing:
        return False
    return True


def _make_all(writers: ThreadPoolExecutor, api: KubeApi, path: str, objects: Iterable[dict[str, Any]]) -> None:
    list(writers.map(lambda each: _make(api, path, each), objects))


def _make(api: KubeApi, path: str, body: dict[str, Any]) -> None:
    import msgspec

    api.create(path, body, msgspec.Raw)


def _pod(name: str, metadata: dict[str, Any] | None = None, **spec: str) -> dict[str, Any]:
    from tests.kube.world import pod

    return pod(name, 1, metadata=metadata, restartPolicy="Never", **spec)


@contextmanager
def _bound_pods(api: KubeApi) -> Iterator[Callable[[], int]]:
    """Counts by a watch the pods that ask for GPUs and are on nodes."""
    from worker_agent.kube.api.mirror import Mirror
    from worker_agent.kube.api.objects import Pod
    from worker_agent.kube.pods.lifting import asks_for_gpus

    pods = Mirror(api=api, path="/api/v1/pods", type_=Pod, note=lambda event, fields: None)
    pods.start()
    try:
        yield lambda: sum(bool(pod.spec.nodeName) and asks_for_gpus(pod) for pod in pods.objects().values())
    finally:
        pods.stop()


def _wait(what: str, holds: Callable[[], bool]) -> None:
    from tests.e2e.processes import wait_for

    sys.stderr.write(f"kube-fill: waits until {what}\n")
    wait_for(what, holds, within_s=WITHIN_S)


if __name__ == "__main__":
    main(*sys.argv[1:])

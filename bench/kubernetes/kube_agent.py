"""The agent as a process on a large cluster, half of it in use, on a real API server: memory, CPU over a minute, how soon the hub knows.

The hub is a stub in this process, which says what the bench wants and counts what it hears; nothing of it runs in the agent's, which is
`python -m bench.kubernetes.kube_agent FOLDER OPTIONS`: the agent as in a pod whose service account is in this folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bench.figures import Figure, NotRun
from bench.kubernetes.kube_view import NODES, PODS, STEADY_S, UPDATES_PER_S, memory_mib, node, pod, update
from protocol.agents.events import EVENTS_PATH, EventsReply, EventsRequest, InventoryEvent
from protocol.agents.listings import set_digest
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH, Credential
from protocol.agents.sync import SYNC_PATH, SyncReply, SyncRequest
from protocol.assignments import Assignment, Desired, Observed, Phase
from protocol.nodes.inventory import NodeView
from protocol.tenancy.cluster_requests import CLUSTER_REQUESTS_PATH, ClusterRequestsReply
from protocol.tenancy.workspaces import Binding, Workspace

BOXES, NODES_OF_BOX, GPUS = 50, 10, 8
FULL_BOXES, WAITING_OF_BOX = 10, 20  # pods that wait for room in them
WRITERS: Final = 8
SETTLED_S: Final = 30.0
WITHIN_S: Final = 900.0
CLOCK_TICKS_PER_S: Final = 100  # of /proc on Linux


def run(traces: Path | None) -> list[Figure]:
    from tests.kube.cluster import KubeError, clusters

    try:
        with clusters("bench") as (cluster,), tempfile.TemporaryDirectory() as folder:
            return _measured(cluster, Path(folder))
    except KubeError as error:
        raise NotRun(str(error)) from error


def _measured(cluster: Any, folder: Path) -> list[Figure]:
    from tests.kube.api.outage import without
    from tests.kube.site import install

    api = _api(cluster)
    _fill(cluster, api)
    install(cluster)
    _let_wait(api)
    # They would have opinions on nodes that no kubelet speaks for.
    with without(cluster, "kube-controller-manager", "kube-scheduler", "kwok"), _hub() as hub:
        with _agent(cluster, hub, folder):
            taken_in_s = hub.until("the nodes", lambda: len(hub.nodes) == NODES)
            hub.assign()
            active_s = hub.until("the boxes", hub.are_active)
        hub.forget()
        with _agent(cluster, hub, folder) as process:
            told_s = hub.until("the nodes again", lambda: len(hub.nodes) == NODES)
            hub.until("the boxes again", hub.are_active)
            time.sleep(SETTLED_S)
            at_rest = _cores(process, lambda: time.sleep(STEADY_S))
            changing = _cores(process, lambda: update(api, time.monotonic() + STEADY_S))
            memory, peak = (memory_mib(kind, process.pid) for kind in ("VmRSS", "VmHWM"))
    case = f"{NODES:,} nodes, {BOXES * NODES_OF_BOX} of them in {BOXES} boxes, {PODS:,} pods"
    rows = (
        ("start of the process to the hub's inventory", "s", told_s, ""),
        ("the same where all nodes are to be taken in", "s", taken_in_s, ""),
        ("from the hub's word to all boxes open", "s", active_s, ""),
        ("at rest, CPU", "cores", at_rest, "<= 0.05"),
        (f"{UPDATES_PER_S} node updates/s, CPU", "cores", changing, ""),
        ("memory of the process", "MiB", memory, "<= 120 MiB"),
        ("the same, peak", "MiB", peak, ""),
    )
    return [Figure("kube-agent", f"{case}: {what}", unit, value, goal=goal) for what, unit, value, goal in rows]


# -- the process that is measured --------------------------------------------------------------------------------------


@contextmanager
def _agent(cluster: Any, hub: Hub, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs with the agent's own rights until a signal ends it."""
    from tests.kube.site import agent_token

    join_token, url = folder / "join-token", urlsplit(re.findall(r'https://[^"\s]+', cluster.kubeconfig.read_text())[0])
    join_token.write_text("once")
    (folder / "ca.crt").write_bytes((cluster.kubeconfig.parent / "ca.crt").read_bytes())
    (folder / "token").write_text(agent_token(cluster))
    env = {**os.environ, "KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}
    command = [
        sys.executable,
        "-m",
        "bench.kubernetes.kube_agent",
        str(folder),
        "--hub",
        hub.url,
        "--join-token-file",
        str(join_token),
        "--in-cluster",
    ]
    hub.began = time.monotonic()
    with (folder / "log").open("ab") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def main(folder: str, *options: str) -> int:
    from worker_agent.__main__ import main as agent
    from worker_agent.kube.api import client

    client.access_in_cluster = partial(client.access_in_cluster, folder=Path(folder))
    return agent(options)


def _cores(process: subprocess.Popen[bytes], meanwhile: Callable[[], None]) -> float:
    began, began_s = time.monotonic(), _cpu_s(process.pid)
    meanwhile()
    return (_cpu_s(process.pid) - began_s) / (time.monotonic() - began)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


# -- the cluster -------------------------------------------------------------------------------------------------------


def _api(cluster: Any) -> Any:
    from worker_agent.kube.api.client import Api, access_by_kubeconfig

    return Api(access_by_kubeconfig(cluster.kubeconfig))


def _fill(cluster: Any, api: Any) -> None:
    """Fills the cluster as when boxes run. It must come before the installation, since then only the agent may let pods in."""
    spaces = [{"metadata": {"name": _slice(box), "labels": {"egs.io/slice": _slice(box)}}} for box in range(BOXES)]
    _make(api, "/api/v1/namespaces", spaces)
    for box in range(BOXES):
        cluster.wait_for_account(_slice(box))
    nodes = [node(number) for number in range(NODES)]
    for each in nodes:
        each["metadata"]["labels"]["egs.io/managed"] = "true"
    _make(api, "/api/v1/nodes", nodes)
    in_boxes, waiting = BOXES * NODES_OF_BOX * GPUS, FULL_BOXES * WAITING_OF_BOX
    for box in range(BOXES):
        of_box = [pod(f"train-{number:04}", box * NODES_OF_BOX + number // GPUS, gpr=_gpr(box)) for number in range(NODES_OF_BOX * GPUS)]
        _make(api, f"/api/v1/namespaces/{_slice(box)}/pods", of_box)
    others = [pod(f"other-{number:04}", BOXES * NODES_OF_BOX + number % 500) for number in range(PODS - in_boxes - waiting)]
    for each in others:
        del each["spec"]["containers"][0]["resources"]
    _make(api, "/api/v1/namespaces/default/pods", others)


def _let_wait(api: Any) -> None:
    from tests.kube.world import pod as gpu_pod

    for box in range(FULL_BOXES):
        _make(api, f"/api/v1/namespaces/{_slice(box)}/pods", [gpu_pod(f"late-{number}", 1) for number in range(WAITING_OF_BOX)])


def _make(api: Any, path: str, objects: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda each: api.create(path, each, msgspec.Raw), objects))


def _slice(box: int) -> str:
    return f"bench-{box:02}"


def _gpr(box: int) -> str:
    return f"gpr-{box:02}"


# -- the hub -----------------------------------------------------------------------------------------------------------


class Hub:
    """Holds each sync until there is news or its wait is over, as the real hub does."""

    def __init__(self) -> None:
        self.url, self.began = "", 0.0
        self.nodes: tuple[NodeView, ...] = ()
        self.observed: tuple[Observed, ...] = ()
        self._assignments: tuple[Assignment, ...] = ()
        self._workspaces = tuple(
            Workspace(id=_slice(box), name=_slice(box), bindings=(Binding(namespace=_slice(box)),)) for box in range(BOXES)
        )
        self._generation = 1
        self._news = threading.Condition()

    def assign(self) -> None:
        with self._news:
            self.began = time.monotonic()
            self._assignments = tuple(self._assignment(number) for number in range(BOXES * NODES_OF_BOX))
            self._generation += 1
            self._news.notify_all()

    def _assignment(self, number: int) -> Assignment:
        view, box = self.nodes[number], number // NODES_OF_BOX
        return Assignment(
            id=f"assignment-{number:04}",
            gpr_id=_gpr(box),
            gpr_name="train",
            slice=_slice(box),
            slice_id=_slice(box),
            namespaces=(_slice(box),),
            node=view.name,
            node_uid=view.uid,
            gpus=tuple(gpu.uuid for gpu in view.gpus),
            epoch=1,
            desired=Desired.PRESENT,
            gang_count=NODES_OF_BOX,
            not_before_s=0.0,
            enter_by_s=time.time() + 3600,
            duration_s=86_400.0,
            not_after_s=None,
            entry_steps=(),
            exit_steps=("drain",),
        )

    def forget(self) -> None:
        self.nodes, self.observed = (), ()

    def are_active(self) -> bool:
        return len(self.observed) == len(self._assignments) and all(seen.phase is Phase.ACTIVE for seen in self.observed)

    def until(self, what: str, holds: Callable[[], bool]) -> float:
        """Returns the seconds since the agent began or got news."""
        sys.stderr.write(f"kube-agent: waits for {what}\n")
        with self._news:
            if not self._news.wait_for(holds, timeout=WITHIN_S):
                raise NotRun(f"{what} did not come")
        return time.monotonic() - self.began

    def answer(self, path: str, body: bytes) -> msgspec.Struct:
        match path:
            case _ if path in (REGISTER_PATH, RENEW_PATH):
                return Credential(agent_id="a", cluster="bench", credential="c", cred_gen=1, expires_s=time.time() + 86_400)
            case _ if path == EVENTS_PATH:
                return self._events(msgspec.json.decode(body, type=EventsRequest))
            case _ if path == CLUSTER_REQUESTS_PATH:
                return ClusterRequestsReply(answers=())
        assert path == SYNC_PATH, path  # noqa: S101
        return self._sync(msgspec.json.decode(body, type=SyncRequest), time.time())

    def _events(self, message: EventsRequest) -> EventsReply:
        with self._news:
            self.nodes = next((each.nodes for each in reversed(message.events) if isinstance(each, InventoryEvent)), self.nodes)
            self._news.notify_all()
        return EventsReply(stored_seq=message.events[-1].seq)

    def _sync(self, message: SyncRequest, received_s: float) -> SyncReply:
        with self._news:
            self.observed = message.observed
            self._news.notify_all()
            self._news.wait_for(lambda: self._generation != message.known_generation, timeout=message.wait_s)
            digest, workspaces_digest = set_digest(self._assignments), set_digest(self._workspaces)
            return SyncReply(
                hub_id="bench",
                session_epoch=1,
                received_s=received_s,
                sent_s=time.time(),
                lease_ttl_s=45.0,
                generation=self._generation,
                count=len(self._assignments),
                digest=digest,
                assignments=None if digest == message.have_digest else self._assignments,
                workspaces_digest=workspaces_digest,
                workspaces=None if workspaces_digest == message.have_workspaces else self._workspaces,
            )


@contextmanager
def _hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = msgspec.json.encode(hub.answer(self.path, body))
            with suppress(BrokenPipeError):  # the agent that asked has ended
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

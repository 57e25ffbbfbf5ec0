"""The agent's process keeps its threads, signals and exit codes right; it talks to a small hub of the tests over real HTTP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from protocol.agents.events import EventsReply, EventsRequest
from protocol.agents.listings import set_digest
from protocol.agents.registration import REGISTER_PATH, Credential
from protocol.agents.sync import SYNC_PATH, SyncReply, SyncRequest
from protocol.agents.transport import Code, Problem
from protocol.assignments import Assignment, Desired, Observed, Phase
from tests.agent.hub.test_tenancy import process_with
from tests.agent.stage import Stage
from worker_agent.hub.workspaces import TenancyResult
from worker_agent.log import Log

ROOT = Path(__file__).parents[3]
FLEET = """
name: tiny
groups: [{name: h, count: 1, node_type: hgx, gpu_model: H100, memory_gib: 80, gpus: 2}]
step_default_s: 0.0
pods: {stop_s: 0.1}
"""


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """An agent that was killed hangs up in the middle of an answer: that is the test, not an error."""


class TinyHub:
    """Holds syncs as the real one does."""

    def __init__(self) -> None:
        self.assignments: tuple[Assignment, ...] = ()
        self.generation = 1
        self.problem: Problem | None = None
        self.lease_ttl_s = 45.0
        self.observed: dict[str, Observed] = {}
        self.paths: list[str] = []
        self.changed = threading.Condition()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = hub.answer(self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                return

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def set(self, *assignments: Assignment) -> None:
        with self.changed:
            self.assignments, self.generation = assignments, self.generation + 1
            self.changed.notify_all()

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.paths.append(path)
        if self.problem:
            return self.problem.status, msgspec.json.encode(self.problem)
        if path == REGISTER_PATH:
            credential = Credential(agent_id="a", cluster="c", credential="k", cred_gen=1, expires_s=time.time() + 9e4)
            return 201, msgspec.json.encode(credential)
        if path == SYNC_PATH:
            return 200, msgspec.json.encode(self.sync(msgspec.json.decode(body, type=SyncRequest)))
        events = msgspec.json.decode(body, type=EventsRequest).events
        return 200, msgspec.json.encode(EventsReply(stored_seq=events[-1].seq))

    def sync(self, request: SyncRequest) -> SyncReply:
        received_s = time.time()
        with self.changed:
            self.observed |= {seen.assignment_id: seen for seen in request.observed}
            self.changed.wait_for(lambda: self.generation != request.known_generation, timeout=request.wait_s)
            return SyncReply(
                hub_id="h",
                session_epoch=1,
                received_s=received_s,
                sent_s=time.time(),
                lease_ttl_s=self.lease_ttl_s,
                generation=self.generation,
                count=len(self.assignments),
                digest=set_digest(self.assignments),
                assignments=self.assignments,
            )


@pytest.fixture
def hub() -> Iterator[TinyHub]:
    hub = TinyHub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


class Agent:
    def __init__(self, hub: TinyHub, directory: Path, *, has_token: bool = True, health_port: int = 0) -> None:
        (directory / "fleet.yaml").write_text(FLEET)
        if has_token:
            (directory / "token").write_text("join-1\n")
        command = [sys.executable, "-m", "worker_agent", "--hub", hub.url, "--join-token-file", str(directory / "token")]
        command += ["--simulate", str(directory / "fleet.yaml"), "--state-dir", str(directory / "state")]
        command += ["--health-port", str(health_port)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stderr and not self.process.stderr.closed:
            self.process.communicate()

    def end(self) -> tuple[int, str]:
        _, told = self.process.communicate(timeout=20)
        return self.process.returncode, told


@pytest.fixture
def start(hub: TinyHub, tmp_path: Path) -> Iterator[Callable[[], Agent]]:
    agents: list[Agent] = []

    def begin() -> Agent:
        agents.append(Agent(hub, tmp_path))
        return agents[-1]

    yield begin
    for agent in agents:
        agent.kill()


def wait_for(what: Callable[[], bool], within_s: float = 15.0) -> float:
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < within_s, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - began


def state_of(tmp_path: Path) -> dict[str, set[str]]:
    world = json.loads((tmp_path / "state" / "cluster.json").read_text())
    return {name: {r["phase"] for r in node["records"].values()} for name, node in world["nodes"].items()}


def assignment(tmp_path: Path, **changes: object) -> Assignment:
    from worker_agent.cluster.fleet import read_fleet

    (tmp_path / "fleet.yaml").write_text(FLEET)
    (view,) = read_fleet(tmp_path / "fleet.yaml").nodes()
    one = Assignment(
        id="a0",
        gpr_id="g",
        gpr_name="train",
        slice="red",
        namespaces=("red",),
        node=view.name,
        node_uid=view.uid,
        gpus=tuple(gpu.uuid for gpu in view.gpus),
        epoch=1,
        desired=Desired.PRESENT,
        gang_count=1,
        not_before_s=0.0,
        enter_by_s=time.time() + 600,
        duration_s=600.0,
        not_after_s=None,
        entry_steps=("node_ready", "gpu_count"),
        exit_steps=("drain", "gpu_idle"),
    )
    return msgspec.structs.replace(one, **changes)


def is_in(hub: TinyHub, phase: Phase) -> Callable[[], bool]:
    return lambda: "a0" in hub.observed and hub.observed["a0"].phase is phase


def test_a_box_opens_within_seconds_and_its_end_is_kept_while_the_sync_is_parked(
    hub: TinyHub, start: Callable[[], Agent], tmp_path: Path
) -> None:
    start()
    wait_for(lambda: SYNC_PATH in hub.paths)
    hub.set(assignment(tmp_path, duration_s=1.0))
    wait_for(is_in(hub, Phase.ACTIVE), within_s=15.0)
    wait_for(is_in(hub, Phase.RELEASED), within_s=15.0)
    seen = hub.observed["a0"]
    assert seen.active_s is not None
    assert seen.exit_began_s is not None
    assert 0.0 <= seen.exit_began_s - (seen.active_s + 1.0) <= 0.5


def test_an_agent_killed_while_a_box_is_open_keeps_its_end_after_the_restart_without_token_or_hub(
    hub: TinyHub, start: Callable[[], Agent], tmp_path: Path
) -> None:
    first = start()
    hub.set(assignment(tmp_path, duration_s=4.0))
    wait_for(is_in(hub, Phase.ACTIVE))
    first.kill()
    hub.problem = Problem(status=503, code="")
    (tmp_path / "token").unlink()
    second = Agent(hub, tmp_path, has_token=False)
    try:
        wait_for(lambda: state_of(tmp_path) == {"tiny-h-01": {"FREE"}})
        assert REGISTER_PATH not in hub.paths[1:]
    finally:
        second.kill()


def test_sigterm_ends_it_at_once_and_leaves_the_nodes_as_they_are(hub: TinyHub, start: Callable[[], Agent], tmp_path: Path) -> None:
    agent = start()
    hub.set(assignment(tmp_path))
    wait_for(is_in(hub, Phase.ACTIVE))
    began = time.monotonic()
    agent.process.send_signal(signal.SIGTERM)
    assert agent.end()[0] == 0
    assert time.monotonic() - began < 3.0
    assert state_of(tmp_path) == {"tiny-h-01": {"OPEN"}}


def test_a_superseded_agent_exits_with_3(hub: TinyHub, start: Callable[[], Agent]) -> None:
    agent = start()
    wait_for(lambda: SYNC_PATH in hub.paths)
    hub.problem = Problem(status=409, code=Code.SUPERSEDED)
    with hub.changed:
        hub.generation += 1
        hub.changed.notify_all()
    assert agent.end()[0] == 3


def test_a_refused_agent_stays_and_says_why_but_not_its_token_and_joins_with_the_next_one(
    hub: TinyHub, start: Callable[[], Agent], tmp_path: Path
) -> None:
    hub.problem = Problem(status=401, code=Code.BAD_TOKEN, detail="This join token is unknown.")
    agent = start()
    wait_for(lambda: REGISTER_PATH in hub.paths)
    time.sleep(1.0)
    assert (agent.process.poll(), hub.paths) == (None, [REGISTER_PATH])

    hub.problem = None
    (tmp_path / "token").write_text("join-2\n")
    wait_for(lambda: SYNC_PATH in hub.paths)

    agent.process.send_signal(signal.SIGTERM)
    code, told = agent.end()
    assert code == 0
    assert told.count("This join token is unknown.") >= 1
    assert not re.search("join-[12]|unexpected", told)


class SlowTenancy:
    """It is in the middle of a look when the process ends, and the cluster is closed under it."""

    def __init__(self) -> None:
        self.is_in, self.is_closed = threading.Event(), threading.Event()

    def reconcile(self, workspaces: object, **_: object) -> TenancyResult:
        self.is_in.set()
        self.is_closed.wait(10.0)
        raise RuntimeError("cannot schedule new futures after shutdown")


def test_what_breaks_off_because_the_process_has_ended_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    broke: list[str] = []
    monkeypatch.setattr(Log, "broke", lambda _, where: broke.append(where))
    tenancy = SlowTenancy()
    process, stop = process_with(tenancy, Stage())
    others = set(threading.enumerate())
    running = threading.Thread(target=process.run)
    running.start()
    assert tenancy.is_in.wait(10.0)
    stop.set()
    running.join(10.0)

    tenancy.is_closed.set()
    process._wake_tenancy.set()  # it need not wait for its next turn to see that there is none
    wait_for(lambda: not any(thread.name == "egs-tenancy" for thread in set(threading.enumerate()) - others))

    assert broke == []


def test_its_files_are_for_its_owner_only(hub: TinyHub, start: Callable[[], Agent], tmp_path: Path) -> None:
    start()
    wait_for(lambda: SYNC_PATH in hub.paths)
    files = list((tmp_path / "state").iterdir())
    assert files
    assert {oct(file.stat().st_mode & 0o077) for file in files} == {"0o0"}


@pytest.mark.parametrize(
    ("driver", "why"),
    [(["--in-cluster"], "this is no pod of a cluster"), (["--kubeconfig", "missing"], "the kubeconfig missing cannot be used")],
)
def test_a_cluster_that_cannot_be_found_is_said_to_be_so(driver: list[str], why: str) -> None:
    command = [sys.executable, "-m", "worker_agent", "--hub", "http://x", "--join-token-file", "t", *driver]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert why in done.stderr


def test_a_fleet_file_with_a_fault_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET + "colour: red\n")
    command = [sys.executable, "-m", "worker_agent", "--hub", "http://x", "--join-token-file", "t"]
    command += ["--simulate", str(tmp_path / "fleet.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "colour" in done.stderr

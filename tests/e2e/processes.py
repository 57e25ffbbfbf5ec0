"""The real thing as processes: a hub and agents that a test may kill, and a client that speaks REST."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import pytest

from tests.e2e.balancer import Balancer
from tests.migrated import copy_to_file

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")
START_S = 300.0
LOOK_LEAST_S, LOOK_MOST_S = 0.02, 0.5  # between looks at what is waited for
ONE_AT_A_TIME = ("--concurrency", "1", "--without-gossip", "--without-mingle")
WORKER_OPTIONS = ("--queues", "allocator", *ONE_AT_A_TIME)

FLEET = """
name: {name}
groups:
  - {{name: gpu, count: 4, node_type: test-8x, gpu_model: H100, memory_gib: 80, gpus: 8}}
step_s: {{node_ready: 0.2, gpu_count: 0.2, gpu_health: 0.3, storage: 0.2, network: 0.3, gpu_idle: 0.1, node_clean: 0.1}}
pods: {{per_node: 1, stop_s: 0.3}}
"""


def free_port() -> int:
    """Takes a port below those that the system gives to clients, since one of these could take it while its server is away."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def program(name: str, *, package: str = "") -> str:
    """Returns its path, and installs it where that is allowed."""
    if shutil.which(name) is None:
        done = subprocess.run(["deploy/services", "program", package or name], cwd=ROOT, check=False, capture_output=True, text=True)
        if done.returncode == 3:
            pytest.skip(done.stderr)
    found = shutil.which(name)
    assert found is not None
    return found


def wait_for(what: str, look: Callable[[], T | Literal[False] | None], *, within_s: float) -> T:
    """The first true answer. The limit is generous: it is there to end a broken test, not to time anything."""
    until, pause_s = time.monotonic() + within_s, LOOK_LEAST_S
    while time.monotonic() < until:
        answer = look()
        if answer:
            return answer
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LOOK_MOST_S)
    raise AssertionError(f"{what} did not come about within {within_s} s")


def is_alive(process: int) -> bool:
    """One whose end nobody has taken note of is not. While its last threads end it is: their files and ports are theirs until then."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status or "\nThreads:\t1\n" not in status


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


class Running:
    """It is a child process that leads its own group and writes its output to a file."""

    def __init__(self, arguments: list[str], *, env: dict[str, str], log: Path) -> None:
        self._arguments, self._env, self.log = arguments, env, log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(self._arguments, cwd=ROOT, env=self._env, stdout=out, stderr=out, start_new_session=True)

    def kill(self) -> None:
        """Ends it as a power cut would, children and all: no signal handler runs."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int | None:
        """Ends it as a supervisor would, and returns the exit code: None when it does not run."""
        self.ask_to_stop()
        return self.wait()

    def ask_to_stop(self) -> None:
        if self._child is not None:
            self._child.terminate()

    def signal(self, number: int) -> None:
        if self._child is not None:
            os.killpg(self._child.pid, number)

    def wait(self) -> int | None:
        if self._child is None:
            return None
        code = self._child.wait(timeout=START_S)
        self._child = None
        return code


class Api:
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=START_S)
        self.token = token

    def at(self, url: str) -> Api:
        """Returns the same person at another address."""
        return Api(url, self.token)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._answer(self._client.get(path))

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._answer(self._client.post(path, json=body or {}))

    def raw(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Returns the answer, whatever it is."""
        return self._client.request(method, path, json=body)

    def try_get(self, path: str) -> Any:
        """Returns None while the hub is away, or says that its database is."""
        try:
            response = self._client.get(path)
        except httpx.TransportError:
            return None
        return None if response.status_code == 503 else self._answer(response)

    def events_of(self, gpr_id: str) -> list[dict[str, Any]]:
        """Returns the oldest first."""
        return list(reversed(self.get(f"/events/?gpr={gpr_id}&page_size=500")["results"]))

    @staticmethod
    def _answer(response: httpx.Response) -> Any:
        assert response.status_code < 400, f"{response.request.url}: {response.status_code} {response.text}"
        return response.json() if response.content else None


class Stage:
    """A hub and one agent a cluster, in a folder of their own; `stop` ends all of them."""

    def __init__(self, folder: Path, *, env: dict[str, str] | None = None) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        copy_to_file(folder / "egs.sqlite3")
        self._env = {**os.environ, "EGS_VAR_DIR": str(folder), "EGS_LOG_LEVEL": "WARNING", **(env or {})}
        self.hub = self._hub()
        self.agents: dict[str, Running] = {}
        self._apis: list[Api] = []

    def start(self) -> Api:
        self.hub.start()
        return self.open()

    def open(self) -> Api:
        """Wait for the hub's port, and become its first administrator."""
        wait_for("the hub", self._listens, within_s=START_S)
        return self.person("root", "--admin")

    def person(self, name: str, *options: str) -> Api:
        """Somebody new, who is in no workspace yet."""
        done = subprocess.run(
            [sys.executable, "manage.py", "egs_create_user", name, *options],
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            check=True,
        )
        self._apis.append(Api(self.url, done.stdout.strip().splitlines()[-1]))
        return self._apis[-1]

    def join(self, api: Api, name: str) -> Running:
        """Add a cluster and start its agent."""
        api.post("/clusters/", {"name": name})
        fleet, token = self.folder / f"{name}.yaml", self.folder / f"{name}.token"
        fleet.write_text(FLEET.format(name=name))
        token.write_text(api.post(f"/clusters/{name}/join-token/")["token"])
        arguments = ["--hub", self.url, "--join-token-file", str(token), "--simulate", str(fleet), "--state-dir", str(self.folder / name)]
        agent = Running([sys.executable, "-m", "worker_agent", *arguments], env=self._env, log=self.folder / f"{name}.log")
        self.agents[name] = agent
        agent.start()
        wait_for("the nodes", lambda: len(api.get(f"/nodes/?cluster={name}")["results"]) == 4, within_s=START_S)
        return agent

    def stop(self) -> None:
        for api in self._apis:
            api.close()
        for agent in self.agents.values():
            agent.kill()
        self.hub.stop()

    def _hub(self) -> Running:
        return self.process("hub", "manage.py", "egs_run", "--port", str(self.port))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def process(self, name: str, *arguments: str) -> Running:
        """Makes a Python process with the hub's environment and does not start it."""
        return Running([sys.executable, *arguments], env=self._env, log=self.folder / f"{name}.log")


class ProductionStage(Stage):
    """It runs two web processes behind a balancer, two Celery workers, one more for notices, and two beats, on PostgreSQL and Redis."""

    def __init__(self, folder: Path, *, database_url: str, redis_url: str) -> None:
        env = {
            "EGS_PROFILE": "production",
            "EGS_SECRET_KEY": "for these tests only, and longer than fifty characters",
            "EGS_ALLOWED_HOSTS": "127.0.0.1",
            "EGS_BEHIND_TLS_PROXY": "0",
            "EGS_DATABASE_URL": database_url,
            "EGS_REDIS_URL": redis_url,
            "EGS_ENTRY_ALLOWANCE_S": "10",
            "EGS_EXIT_ALLOWANCE_S": "10",
        }
        super().__init__(folder, env=env)
        web_ports = [self.port, free_port()]
        self.web_urls = [f"http://127.0.0.1:{port}" for port in web_ports]
        self.webs = [self.hub, self._web("web2", web_ports[1])]
        self.workers = [self._celery(f"worker{n}", "worker", *WORKER_OPTIONS, "-n", f"worker{n}@%h") for n in (1, 2)]
        self.notices = self._celery("notices", "worker", "--queues", "notices", *ONE_AT_A_TIME, "-n", "notices@%h")
        self.beats = [self.process(f"beat{n}", "-m", "celery", "-A", "egs.beat", "beat", "-s", str(folder / f"beat{n}")) for n in (1, 2)]
        self._balancer = Balancer(web_ports)
        self.url = f"http://127.0.0.1:{self._balancer.port}"

    def start(self) -> Api:
        for process in (*self.webs, *self.workers, self.notices, *self.beats):
            process.start()
        return self.open()

    def collect_static(self) -> None:
        """Only pages need it."""
        subprocess.run([sys.executable, "manage.py", "collectstatic", "--noinput", "-v0"], cwd=ROOT, env=self._env, check=True)

    def stop(self) -> None:
        for process in (*self.beats, *self.workers, self.notices, *self.webs):
            process.kill()
        super().stop()
        self._balancer.stop()

    def _hub(self) -> Running:
        return self._web("web1", self.port)

    def _web(self, name: str, port: int) -> Running:
        return self.process(name, "manage.py", "egs_web", "--port", str(port))

    def _celery(self, name: str, *arguments: str) -> Running:
        return self.process(name, "-m", "celery", "-A", "egs.celery", *arguments)

    def _listens(self) -> bool:
        return all(is_ready(url) for url in self.web_urls)


def demo_tokens(folder: Path) -> dict[str, str] | None:
    """Returns what `manage.py demo` wrote, once it has."""
    path = folder / "demo.json"
    if not path.exists() or not path.read_text().strip():
        return None
    tokens: dict[str, str] = json.loads(path.read_text())
    return tokens

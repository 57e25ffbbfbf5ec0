"""/healthz, /readyz and /metrics of a real agent process, what its instruments count, and what its log calls a warning."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from protocol.agents.transport import Problem
from protocol.assignments import Phase
from protocol.nodes.drift import Drift
from tests.agent.boxes.test_exit import active
from tests.agent.fake_kube import assignment as kube_assignment
from tests.agent.fake_kube import made, waiting_pod
from tests.agent.nodes.test_driver import served, soon
from tests.agent.process.test_process import ROOT, Agent, TinyHub, wait_for
from tests.agent.stage import Stage
from tests.e2e.processes import free_port
from worker_agent.boxes.records import new_records
from worker_agent.clock import Instant, SystemClock
from worker_agent.cluster.base import GpuPhase, WriteConflict
from worker_agent.health import STUCK_S, Health, serve
from worker_agent.hub.drift import DriftReport
from worker_agent.kube.api.mirror import SILENCE_S
from worker_agent.log import ERROR, INFO, level_of
from worker_agent.metrics import REGISTRY, WritePool


@pytest.fixture
def hub() -> Iterator[TinyHub]:
    hub = TinyHub()
    hub.lease_ttl_s = 0.5
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def ask(port: int, path: str) -> tuple[int, str]:
    """Returns status 0 while nobody listens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        return 0, ""
    finally:
        connection.close()


def test_an_agent_whose_hub_is_away_lives_and_says_that_it_is_not_ready_and_why(hub: TinyHub, tmp_path: Path) -> None:
    port = free_port()
    hub.problem = Problem(status=503, code="")
    agent = Agent(hub, tmp_path, health_port=port)
    try:
        wait_for(lambda: "no word from the hub since the agent started" in ask(port, "/readyz")[1])
        assert ask(port, "/readyz")[0] == 503
        assert ask(port, "/healthz") == (200, json.dumps({"status": "ok", "checks": {"passes": "ok"}}))
        assert "egs_agent_sync_age_seconds +Inf" in ask(port, "/metrics")[1]

        hub.problem = None
        hub.lease_ttl_s = 45.0
        wait_for(lambda: ask(port, "/readyz")[0] == 200)
        figures = ask(port, "/metrics")[1]
        assert float(re.findall(r"^egs_agent_sync_age_seconds (\S+)$", figures, re.MULTILINE)[0]) < 20
        assert "egs_agent_leading 1.0" in figures
        assert ask(port, "/other")[0] == 404
    finally:
        agent.kill()


def test_a_replica_that_waits_for_its_turn_is_ready_as_long_as_it_hears_of_all_that_it_watches() -> None:
    _, driver = made({"n1": {}}, guard={})
    health, now = Health({"watches": driver.why_watches_lag}), Instant.of(SystemClock())
    for mirror in (driver._nodes, driver._pods, driver._namespaces):
        mirror._heard_at = now
    assert health.answer("/readyz")[0] == 200

    driver._pods._heard_at = now.later(-SILENCE_S - 1)
    status, _, body = health.answer("/readyz")
    assert (status, b"has said nothing of pods for more than 120 s" in body) == (503, True)

    driver._nodes._is_whole.clear()
    assert driver.why_watches_lag() == "nodes have not been read yet"


def figure(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_port_that_is_taken_is_told_and_no_reason_to_end() -> None:
    notes: list[str] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        serve(Health(), host="127.0.0.1", port=other.getsockname()[1], note=lambda event, _: notes.append(event))

    assert notes == ["health_not_served"]


def test_a_process_whose_pass_hangs_does_not_live() -> None:
    assert Health(idle_s=lambda: STUCK_S + 1).answer("/healthz")[0] == 503


def test_how_long_a_drain_took_is_measured_from_the_close_of_the_box() -> None:
    before = figure("egs_agent_drain_seconds_count"), figure("egs_agent_drain_seconds_sum")
    stage = Stage()
    active(stage)
    stage.run(70, until=lambda: stage.phase() is Phase.RELEASED)

    assert figure("egs_agent_drain_seconds_count") == before[0] + 1
    assert 0.0 < figure("egs_agent_drain_seconds_sum") - before[1] < 10.0


def test_lifts_are_measured_from_when_the_pod_was_seen_and_those_refused_are_counted() -> None:
    before = figure("egs_agent_lift_seconds_count"), figure("egs_agent_lifts_refused_total")
    box = kube_assignment("a", "n1", "GPU-0")
    api, driver = made({"n1": new_records(box, GpuPhase.OPEN)}, guard={"n1": "@1,red"}, pods=[waiting_pod("p1"), waiting_pod("p2")])

    def refuses(verb: str, path: str) -> None:
        if verb == "PATCH" and path.endswith("/p1"):
            raise WriteConflict("422: a policy of the cluster denies it")

    api.hook = refuses
    driver.observe()

    assert soon(lambda: served(driver, box) == ["red/p1"])
    assert figure("egs_agent_lift_seconds_count") == before[0] + 1
    assert figure("egs_agent_lifts_refused_total") >= before[1] + 1


def test_repairs_of_drift_are_counted_and_what_is_left_as_it_is_is_none() -> None:
    before = figure("egs_agent_drift_repairs_total")

    DriftReport().see("nodes", [Drift(what="a", detail="x", is_repaired=True), Drift(what="b", detail="x")], 0.0)

    assert figure("egs_agent_drift_repairs_total") == before + 1


def test_writes_that_wait_are_counted_until_they_are_over_or_given_up() -> None:
    gate, pool = threading.Event(), WritePool("test", 1)
    for _ in range(3):
        pool.submit(gate.wait)
    assert figure("egs_agent_writes_queued", kind="test") == 3

    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    pool.shutdown()

    assert figure("egs_agent_writes_queued", kind="test") == 0


def test_the_log_says_what_needs_somebody_as_a_warning_or_an_error() -> None:
    """Each event whose level is not that of a warning is one that the agent says."""
    source = "".join(path.read_text() for path in (ROOT / "worker_agent").rglob("*.py") if path.name != "log.py")

    assert level_of("refused") == level_of("step_failed") == logging.WARNING
    assert level_of("broke") == logging.ERROR
    assert level_of("node_taken_in") == logging.INFO
    assert not INFO & ERROR
    assert [event for event in sorted(INFO | ERROR) if f'"{event}"' not in source] == []

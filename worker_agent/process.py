"""Runs the agent as a process: eight threads around one core.

The main thread runs the passes. Others talk to the hub, keep the namespaces, handle cluster requests, run jobs, send telemetry and report
pods. They hold the one lock only to exchange data with the core, so an absent hub never delays an exit.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Protocol

import msgspec

from protocol.decoding import decode
from protocol.tenancy.workloads import LOGS_PATH, LogAsk, LogReply
from worker_agent.boxes.core import Core
from worker_agent.boxes.state import OtherWriter
from worker_agent.clock import Clock
from worker_agent.cluster.base import ClusterDriver
from worker_agent.hub.dialog import Call, Dialog, Lane, Stop
from worker_agent.hub.pods import PodsLane, PodSource
from worker_agent.hub.requests import Requests
from worker_agent.hub.transport import NoAnswer
from worker_agent.hub.workloads import BoxJob, LogSender, WorkloadDriver
from worker_agent.hub.workspaces import TenancyDriver
from worker_agent.log import Log
from worker_agent.telemetry.lane import TelemetryLane, TelemetrySource

PERIOD_S = 0.2  # between passes, or checks whether one is due; an exit begins within this time
SLOW_S = 1.0
TENANCY_S = 30.0  # between checks of namespaces without news from the hub
TENANCY_SOON_S = 5.0  # after a check that left work to do
REQUESTS_S = 1.0  # between checks of objects without news
REQUESTS_LEAST_S = 0.1  # the shortest time between checks
REQUESTS_REST = 4.0  # the pause is at least this many times the CPU time of the last check
WORKLOADS_S = 1.0  # between looks at jobs without news
LOG_CALLS_MAX, LOG_TIMEOUT_S = 8, 5.0  # of one pod in one look
FIRST_READINGS_S = 2.0
LEAST_READINGS_PAUSE_S = 5.0  # however long the exporters take
EXIT_OK, EXIT_SUPERSEDED = 0, 3


class Transport(Protocol):
    def post(self, call: Call) -> tuple[int, bytes, float]: ...


class Process:
    def __init__(
        self,
        *,
        cluster: ClusterDriver,
        tenancy: TenancyDriver,
        requests: Requests,
        workloads: WorkloadDriver,
        telemetry: TelemetrySource,
        pods: PodSource,
        connect: Callable[[], Transport],
        join_token: Callable[[], str],
        clock: Clock,
        log: Log,
        stop: threading.Event | None = None,  # ends the process when set, even by a signal; nodes stay as they are
    ) -> None:
        rng = random.Random()  # noqa: S311  # jitter and ids, not secrets
        self._cluster = cluster
        self._log, self._connect, self._tenancy, self._requests, self._clock = log, connect, tenancy, requests, clock
        self._workloads, self._logs = workloads, LogSender(clock)
        self._telemetry, self._telemetry_lane = telemetry, TelemetryLane(note=log)
        self._pods, self._pods_lane = pods, PodsLane(note=log)
        self._core = Core(cluster=cluster, clock=clock, rng=random.SystemRandom(), note=log)
        self._dialog = Dialog(core=self._core, cluster_uid=cluster.uid(), join_token=join_token, clock=clock, rng=rng, note=log)
        self._lock = threading.Lock()
        self._wake_main, self._wake_push, self._wake_tenancy = threading.Event(), threading.Event(), threading.Event()
        self._wake_requests, self._wake_workloads = threading.Event(), threading.Event()
        self._is_stopping = stop or threading.Event()
        self._is_superseded = False
        self._is_over = False  # the cluster may be closed while other threads still use it
        self._began_mono = clock.mono()

    def why_not_ready(self) -> str:
        return self._core.link.entry_block()

    @property
    def sync_age_s(self) -> float:
        return self._core.link.sync_age_s

    @property
    def idle_s(self) -> float:
        return self._clock.mono() - self._began_mono

    def run(self) -> int:
        """Returns the exit code."""
        for lane in Lane:
            # Daemons: a parked sync must not hold up the end of the process.
            threading.Thread(target=self._talk, args=(lane,), name=f"egs-{lane}", daemon=True).start()
        threading.Thread(target=self._keep_tenancy, name="egs-tenancy", daemon=True).start()
        threading.Thread(target=self._keep_requests, name="egs-requests", daemon=True).start()
        threading.Thread(target=self._keep_workloads, name="egs-workloads", daemon=True).start()
        threading.Thread(target=self._keep_telemetry, name="egs-telemetry", daemon=True).start()
        threading.Thread(target=self._report_pods, name="egs-pods", daemon=True).start()
        while not self._is_stopping.is_set() and self._dialog_stop() is None:
            self._wake_main.clear()
            self._began_mono = self._clock.mono()
            serial = self._cluster.serial()
            self._pass()
            self._wake_push.set()
            self._rest_until_change(serial)
        self._is_stopping.set()
        self._is_over = True
        return self._exit_code()

    def _dialog_stop(self) -> Stop | None:
        with self._lock:
            return Stop.SUPERSEDED if self._is_superseded else self._dialog.stop

    def _exit_code(self) -> int:
        if self._dialog_stop() is not Stop.SUPERSEDED:
            return EXIT_OK
        self._log("superseded", {"why": "another agent is at work for this cluster; this one stops"})
        return EXIT_SUPERSEDED

    def _pass(self) -> None:
        with self._guard("pass"), self._lock:
            self._core.reconcile()

    def _rest_until_change(self, serial: int) -> None:
        with self._lock:
            until_mono = self._clock.mono() + self._core.rest_s()
        while not (self._wake_main.wait(PERIOD_S) or self._is_stopping.is_set()):
            if self._clock.mono() >= until_mono or self._cluster.serial() != serial:
                return

    def _talk(self, lane: Lane) -> None:
        transport = self._connect()
        while not self._is_stopping.is_set():
            pause_s = SLOW_S  # after something unexpected
            with self._guard(lane):
                pause_s = self._exchange(transport, lane)
            self._rest(lane, pause_s)

    def _exchange(self, transport: Transport, lane: Lane) -> float:
        """Returns how long the lane may rest."""
        with self._lock:
            call = self._dialog.next_call(lane)
        if not isinstance(call, Call):
            return call
        try:
            status, body, retry_after_s = transport.post(call)
        except NoAnswer as error:
            with self._lock:
                self._dialog.on_no_answer(lane, call, str(error))
            return 0.0
        with self._lock:
            link = self._core.link
            wanted, digest = link.tenancy.wanted, link.requests.states.digest
            work = (link.workloads.listed.digest, link.workloads.asks)
            self._dialog.on_answer(lane, call, status, body, retry_after_s)
            if link.tenancy.wanted is not wanted:
                self._wake_tenancy.set()
            if link.requests.has_answers or link.requests.states.digest != digest:
                self._wake_requests.set()
            if (link.workloads.listed.digest, link.workloads.asks) != work:
                self._wake_workloads.set()
        self._wake_main.set()
        return 0.0

    def _keep_tenancy(self) -> None:
        while not self._is_stopping.is_set():
            self._wake_tenancy.clear()
            is_unfinished = False
            with self._guard("tenancy"):
                is_unfinished = self._reconcile_tenancy()
            self._wake_tenancy.wait(TENANCY_SOON_S if is_unfinished else TENANCY_S)

    def _reconcile_tenancy(self) -> bool:
        """Returns whether work was left. Calls to the cluster are made without the lock."""
        with self._lock:
            tenancy, in_use = self._core.link.tenancy, self._core.in_use()
            wanted, has_token, repairs = tenancy.wanted, tenancy.has_token, self._core.repairs_drift
        found = self._tenancy.reconcile(wanted, in_use=in_use, has_token=has_token, repairs=repairs)
        with self._lock:
            tenancy.report(wanted, found)
            self._core.link.drifts.see("install", found.drifts, self._clock.mono())
        self._wake_push.set()
        self._wake_requests.set()  # since namespaces may have been bound
        return found.is_unfinished

    def _keep_requests(self) -> None:
        self._requests.watch(self._wake_requests.set)
        took_s = 0.0
        # However many objects there are, this uses only a part of one core.
        while not self._is_stopping.wait(max(REQUESTS_LEAST_S, took_s * REQUESTS_REST)):
            self._wake_requests.clear()
            begun_s = time.thread_time()
            with self._guard("requests"):
                self._exchange_requests()
            took_s = time.thread_time() - begun_s
            self._wake_requests.wait(REQUESTS_S)

    def _exchange_requests(self) -> None:
        with self._lock:
            link = self._core.link
            news = link.requests.collect(link.tenancy.wanted if link.tenancy.is_seen else None)
        requests, waiting, failed = self._requests.look(news), self._requests.waiting(), self._requests.jobs_failed()
        with self._lock:
            link.requests.put(requests)
            if waiting is not None:
                link.waiting_pods.see(waiting)
            link.failed_jobs.see(failed)
            has_news = link.has_news_of_pods
        if requests or has_news:
            self._wake_push.set()

    def _keep_workloads(self) -> None:
        transport = self._connect()
        while not self._is_stopping.is_set():
            self._wake_workloads.clear()
            with self._guard("workloads"):
                self._run_workloads(transport)
            self._wake_workloads.wait(WORKLOADS_S)

    def _run_workloads(self, transport: Transport) -> None:
        """Calls to the cluster are made without the lock."""
        with self._lock:
            boxes, exchange, now_s = self._core.open_boxes(), self._core.link.workloads, self._core.hub_now_s
            jobs, asks = exchange.jobs(boxes or ()), exchange.asks
        kinds = self._workloads.kinds()
        seen = () if boxes is None else self._workloads.reconcile(jobs, {(box.gpr_id, box.run) for box in boxes}, now_s=now_s)
        seen_of = {each.id: each for each in seen}
        unsent = {ask.id for job, ask in self._logs.wanted(jobs, seen_of, asks) if not self._send_log(transport, job, ask)}
        with self._lock:
            exchange.kinds = kinds if kinds is not None else exchange.kinds
            exchange.see(self._logs.tellable(seen, unsent))
            has_news = self._core.link.has_news_of_pods
        if has_news:
            self._wake_push.set()

    def _send_log(self, transport: Transport, job: BoxJob, ask: LogAsk) -> bool:
        """Returns whether the hub has all that there is now."""
        for _ in range(LOG_CALLS_MAX):
            part = self._workloads.log(job, ask.rank, self._logs.since(ask))
            if part is None or not part.text:
                return part is not None
            with self._lock:
                credential, session_epoch = self._core.credential, self._core.link.session_epoch
            if credential is None or not session_epoch:
                return False
            body = msgspec.json.encode(self._logs.chunk(ask, part, session_epoch))
            try:
                status, answer, _ = transport.post(Call(LOGS_PATH, body, LOG_TIMEOUT_S, bearer=credential.credential))
                if status != HTTPStatus.OK:
                    return False
                self._logs.on_reply(ask, decode(answer, LogReply))
            except (NoAnswer, msgspec.DecodeError):
                return False
        return False

    def _keep_telemetry(self) -> None:
        transport, lane = self._connect(), self._telemetry_lane
        pause_s = FIRST_READINGS_S
        while not self._is_stopping.wait(pause_s):
            began_mono = self._clock.mono()
            with self._guard("telemetry"):
                with self._lock:
                    nodes, ahead_s = self._core.nodes, self._core.hub_now_s - self._clock.wall()
                lane.put(self._telemetry.read(nodes, lambda ahead_s=ahead_s: self._clock.wall() + ahead_s))  # type: ignore[misc]
                self._send(transport, lane)
            pause_s = max(lane.every_s - (self._clock.mono() - began_mono), LEAST_READINGS_PAUSE_S)

    def _report_pods(self) -> None:
        transport, lane = self._connect(), self._pods_lane
        while not self._is_stopping.wait(lane.every_s):
            with self._guard("pods"):
                with self._lock:
                    link, nodes = self._core.link, self._core.nodes
                    session_epoch, workspaces = link.session_epoch, link.tenancy.wanted
                lane.see(self._pods.look(nodes, workspaces), session_epoch)
                self._send(transport, lane)

    def _send(self, transport: Transport, lane: TelemetryLane | PodsLane) -> None:
        # A credential that is replaced meanwhile stays good for longer than a call takes.
        while not self._is_stopping.is_set():
            with self._lock:
                credential = self._core.credential if self._core.link.session_epoch else None
            call = lane.next_call(credential, self._clock.mono())
            if call is None:
                return
            try:
                status, body, retry_after_s = transport.post(call)
            except NoAnswer as error:
                lane.on_no_answer(str(error), self._clock.mono())
            else:
                lane.on_answer(status, body, retry_after_s, self._clock.mono())

    def _rest(self, lane: Lane, pause_s: float) -> None:
        if pause_s <= 0:
            return
        if lane is Lane.PUSH:
            self._wake_push.wait(pause_s)
            self._wake_push.clear()
        else:
            self._is_stopping.wait(min(pause_s, 1.0))

    @contextmanager
    def _guard(self, where: str) -> Iterator[None]:
        # A fault must not end the process, since other nodes have ends to keep.
        try:
            yield
        except OtherWriter:
            self._is_superseded = True
            self._wake_main.set()
        except Exception:
            if not self._is_over:
                self._log.broke(where)

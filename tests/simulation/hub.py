"""The hub: its real services, on a database that survives, in a process that does not.

A crash is an exception that nothing catches, before the commit, after it, or at any statement between; then the process is gone for
a while, and with it whatever it only had in memory: the parked syncs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from django.db import connection, transaction

from core.errors import EgsError
from gpr.allocation.allocator import tick
from inventory import agent_hub
from inventory.agent_hub import AgentAnswer, ReceivedSync
from protocol.agents.sync import WAIT_MAX_S, SyncRequest
from tests.simulation.faults import Faults, Kind
from tests.simulation.judge import rows, uuid_of
from tests.simulation.loop import Loop
from worker_agent.hub.dialog import Call

Result = TypeVar("Result")
Respond = Callable[[int, bytes], None]

TICK_EVERY_S = 20.0  # besides the kicks
CRASH_CHANCE = 0.02


class HubCrash(BaseException):
    """The process is gone."""


@dataclass(slots=True)
class Parked:
    heard: ReceivedSync
    until: float
    respond: Respond
    hang_up: Callable[[], None]


class SimHub:
    def __init__(self, *, loop: Loop, faults: Faults, rng: random.Random, check: Callable[[], None]) -> None:
        self._loop, self._faults, self._rng, self._check = loop, faults, rng, check
        self.is_up = True
        self.crash_count = 0
        self._parked: list[Parked] = []
        self._is_kicked = False
        self._life = 0
        self._fingerprint: list[tuple[Any, ...]] = []

    # -- what the world asks of it -------------------------------------------------------------------------------------

    def start(self) -> None:
        self._beat(self._life)

    def receive(self, call: Call, respond: Respond, hang_up: Callable[[], None]) -> None:
        """Serves one HTTP request. It calls exactly one of the two, now or later, or none if the process dies."""
        if not self.is_up:
            hang_up()
            return
        try:
            self._serve(call, respond, hang_up)
        except HubCrash:
            hang_up()

    def act(self, what: str, work: Callable[[datetime], None]) -> None:
        """A user or administrator does something; refused or not."""
        if not self.is_up:
            return
        try:
            self._survive(lambda: work(self._loop.at))
            self._loop.note(f"hub {what}")
        except EgsError as error:
            self._loop.note(f"hub {what}: {type(error).__name__} {error.detail}")
        except HubCrash:
            return
        self._changed()

    def go_down(self, seconds: float) -> None:
        self._loop.note(f"hub down for {seconds:.1f} s")
        self.is_up, self._life = False, self._life + 1
        parked, self._parked = self._parked, []
        for each in parked:
            each.hang_up()
        self._loop.after(seconds, self._come_up)

    def _come_up(self) -> None:
        if not self.is_up:
            self._loop.note("hub up")
            self.is_up, self._is_kicked = True, False
            self._beat(self._life)

    # -- agents --------------------------------------------------------------------------------------------------------

    def _serve(self, call: Call, respond: Respond, hang_up: Callable[[], None]) -> None:
        wait_s = min(msgspec.json.decode(call.body, type=SyncRequest).wait_s, WAIT_MAX_S) if call.sent else 0.0
        if wait_s:
            self._hear(call, wait_s, respond, hang_up)
            return
        answer = self._survive(lambda: agent_hub.answer(path=call.path, bearer=call.bearer, body=call.body, now=self._loop.at))
        self._changed()
        respond(answer.status, answer.body)

    def _hear(self, call: Call, wait_s: float, respond: Respond, hang_up: Callable[[], None]) -> None:
        heard: list[ReceivedSync] = []

        def hear() -> AgentAnswer:
            heard.append(agent_hub.receive_sync(bearer=call.bearer, body=call.body, now=self._loop.at))
            return AgentAnswer(200, b"")

        refusal = self._survive(lambda: agent_hub.answer_errors(hear))
        if heard and refusal.status == 200:
            self._parked.append(Parked(heard[0], self._loop.now + wait_s, respond, hang_up))
            self._loop.after(wait_s, self._answer_parked)
        else:
            respond(refusal.status, refusal.body)
        self._changed()

    def _answer_parked(self) -> None:
        """Answers agents that have waited long enough, or for which there is news."""
        if not self._parked or not self.is_up:
            return
        generations = {uuid_of(pk): number for pk, number in rows("SELECT id, generation FROM inventory_cluster")}
        waiting, self._parked = self._parked, []
        for each in waiting:
            cluster_id = each.heard.agent.cluster.pk
            if generations[cluster_id] == each.heard.message.known_generation and self._loop.now < each.until:
                self._parked.append(each)
                continue
            answer = agent_hub.encode_reply(agent_hub.reply_to_sync(each.heard, now=self._loop.at))
            each.respond(answer.status, answer.body)

    # -- ticks ---------------------------------------------------------------------------------------------------------

    def _beat(self, life: int) -> None:
        if life == self._life and self.is_up:
            self._tick()
            self._loop.after(TICK_EVERY_S, lambda: self._beat(life))

    def kick(self, after_s: float) -> None:
        if not self._is_kicked:
            self._is_kicked = True
            self._loop.after(after_s, self._kicked)

    def _kicked(self) -> None:
        self._is_kicked = False
        if self.is_up:
            self._tick()

    def _tick(self) -> None:
        try:
            report = self._survive(lambda: tick(now=self._loop.at))
        except HubCrash:
            return
        if report and (report.moved_count or report.started):
            self._loop.note(f"hub tick moved {report.moved_count} started {len(report.started)} skipped {report.skipped}")
            self._changed()
        elif report and report.skipped:
            self._loop.note(f"hub tick skipped {sorted(report.skipped.values())}")
        self._check()

    # -- crashes -------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._check()
        self._answer_parked()
        if (now := fingerprint()) != self._fingerprint:
            self._fingerprint = now
            self.kick(self._rng.uniform(0.2, 3.0))

    def _survive(self, work: Callable[[], Result]) -> Result:
        """Do it, or die in it. Raises HubCrash when the process is gone."""
        try:
            if self._faults.strikes(Kind.HUB_CRASH_BEFORE_COMMIT, CRASH_CHANCE):
                with transaction.atomic():
                    work()
                    raise HubCrash
            if self._faults.strikes(Kind.HUB_CRASH_BETWEEN, CRASH_CHANCE):
                with connection.execute_wrapper(Fuse(self._rng.randint(1, 25))):
                    return work()
            result = work()
            if self._faults.strikes(Kind.HUB_CRASH_AFTER_COMMIT, CRASH_CHANCE):
                raise HubCrash
        except HubCrash:
            self.crash_count += 1
            self._loop.note("hub crash")
            self.go_down(self._rng.uniform(0.5, 8.0))
            raise
        return result


def fingerprint() -> list[tuple[Any, ...]]:
    """Differs when something happened that the real hub would wake its allocator for."""
    phases = "SELECT state, phase, desired, count(*) FROM inventory_reservation GROUP BY state, phase, desired ORDER BY 1, 2, 3"
    return rows("SELECT max(id) FROM journal_event") + rows(phases)


class Fuse:
    """Blows at the n-th statement."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self._left -= 1
        # The database undoes what is open when its client dies; Django does it here by these.
        if self._left <= 0 and not sql.startswith(("ROLLBACK", "RELEASE", "SAVEPOINT")):
            self._left = 1_000_000
            raise HubCrash
        return execute(sql, params, many, context)

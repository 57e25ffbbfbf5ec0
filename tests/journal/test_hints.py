"""Hints: sent after the commit or not at all, may be lost, and a lost one costs seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from subprocess import Popen
from typing import Any

import pytest
from celery import current_app
from django.db import transaction
from django.test import override_settings

from gpr.allocation import allocator
from gpr.tasks import tick_task
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal import hints
from journal.hints import CHANNEL, KICK_KEY, TICK, cluster_topic, hint, kick_taken, listen, unlisten
from tests.builders import generation_of, make_cluster
from tests.inventory.agent import Agent
from tests.journal.redis_server import OwnRedis
from tests.promises.races.processes import child_environment, script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def heard() -> Iterator[list[str]]:
    topics: list[str] = []
    with override_settings(EGS_REDIS_URL=""):
        listen(topics.append)
        yield topics
        unlisten(topics.append)


def test_a_hint_is_sent_once_when_its_change_can_be_seen(heard: list[str]) -> None:
    with transaction.atomic():
        for topic in ("news", "weather", "news"):
            hint(topic)
        assert heard == []

    assert heard == ["news", "weather"]


def _hint_and_fail(topic: str) -> None:
    hint(topic)
    raise ZeroDivisionError


def test_a_hint_of_a_change_that_is_undone_is_not_sent(heard: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        _hint_and_fail("news")

    assert heard == []


def test_a_hint_of_a_part_that_is_undone_is_not_sent(heard: list[str]) -> None:
    with transaction.atomic():
        hint("outer")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            _hint_and_fail("inner")

    assert heard == ["outer"]


def test_a_hint_outside_of_a_transaction_is_sent_now(heard: list[str]) -> None:
    hint("news")

    assert heard == ["news"]


def test_who_no_longer_listens_hears_nothing() -> None:
    topics: list[str] = []
    with override_settings(EGS_REDIS_URL=""):
        listen(topics.append)
        unlisten(topics.append)
        hint("news")

    assert topics == []


def test_a_change_is_committed_though_its_hint_fails() -> None:
    def broken(topic: str) -> None:
        raise ValueError(topic)

    with override_settings(EGS_REDIS_URL=""):
        listen(broken)
        try:
            cluster = make_cluster()
            with transaction.atomic():
                desired_set_changed([cluster.pk])
        finally:
            unlisten(broken)

    assert generation_of(cluster) == 1


def test_a_cluster_hears_of_its_own_changes_only(heard: list[str]) -> None:
    one, two = make_cluster(is_heard=False), make_cluster(is_heard=False)
    heard.clear()

    desired_set_changed([one.pk])

    assert heard == [cluster_topic(one.pk)]
    assert cluster_topic(one.pk) != cluster_topic(two.pk)


# -- by Redis ------------------------------------------------------------------------------------------------------------

SELDOM_S = 20.0
PARKED = """
import asyncio, json, sys, time
from inventory import agent_views
from inventory.models import Cluster
from journal import hints
from tests.inventory.agent import Agent
from tests.inventory.http import sync
given = json.loads(sys.stdin.readline())
agent = Agent(Cluster.objects.get(), given["credential"], boot=given["boot"], session_epoch=given["session_epoch"])

async def main():
    for line in sys.stdin:
        known_generation, agent_views.LOOK_AGAIN_S = json.loads(line)
        began = time.monotonic()
        reply = await sync(agent, known_generation=known_generation)
        print(json.dumps([reply.generation, time.monotonic() - began]), flush=True)

asyncio.run(main())
"""


class ParkedAgent:
    """An agent parked at a web server that is another process."""

    def __init__(self, agent: Agent, redis_url: str) -> None:
        self._child: Popen[str] = script(PARKED, env={**child_environment(), "EGS_REDIS_URL": redis_url})
        self._say(json.dumps({"credential": agent.credential, "boot": agent.boot, "session_epoch": agent.session_epoch}))

    def park(self, generation: int, *, look_again_s: float) -> None:
        self._say(json.dumps([generation, look_again_s]))

    def answer(self) -> tuple[int, float]:
        """The generation that it was told, and how long it was parked."""
        assert self._child.stdout is not None
        line = next(line for line in self._child.stdout if line.startswith("["))  # others are its log
        generation, took_s = json.loads(line)
        return generation, took_s

    def _say(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


@pytest.fixture
def own_redis(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnRedis]:
    server = OwnRedis()
    server.start()
    monkeypatch.setattr(hints._clients, "client", None, raising=False)
    with override_settings(EGS_REDIS_URL=server.url):
        yield server
    server.kill()


def wait_for(look: Callable[[], bool], *, within_s: float = 20.0) -> None:
    until = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def bump(cluster: Cluster) -> None:
    with transaction.atomic():
        desired_set_changed([cluster.pk])


@pytest.mark.postgres_only
def test_a_hint_reaches_an_agent_that_is_parked_at_another_process_and_a_dead_redis_only_delays_it(own_redis: OwnRedis) -> None:
    agent = Agent.joined(make_cluster("c1", is_heard=False))
    parked = ParkedAgent(agent, own_redis.url)
    try:
        # Redis works: long before it would have looked.
        parked.park(0, look_again_s=SELDOM_S)
        wait_for(lambda: own_redis.listener_count(CHANNEL) == 1)
        time.sleep(0.5)
        began = time.monotonic()
        bump(agent.cluster)
        assert parked.answer()[0] == 1
        assert time.monotonic() - began < SELDOM_S / 2

        # Redis is dead: whoever is parked looks again by himself, and the change is not held up by the hint.
        parked.park(1, look_again_s=1.0)
        time.sleep(0.5)
        own_redis.kill()
        began = time.monotonic()
        bump(agent.cluster)
        assert time.monotonic() - began < 2.5
        assert parked.answer()[0] == 2
        assert time.monotonic() - began < SELDOM_S / 2

        # Redis is back: long before it would have looked.
        own_redis.start()
        parked.park(2, look_again_s=SELDOM_S)
        wait_for(lambda: own_redis.listener_count(CHANNEL) == 1)
        time.sleep(0.5)
        began = time.monotonic()
        bump(agent.cluster)
        assert parked.answer()[0] == 3
        assert time.monotonic() - began < SELDOM_S / 2
    finally:
        parked.end()


@pytest.mark.postgres_only
def test_many_changes_ask_for_one_tick_until_it_begins(own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **how: sent.append(name))

    for _ in range(5):
        hint(TICK)
    assert sent == ["gpr.tick"]

    kick_taken()
    hint(TICK)
    assert sent == ["gpr.tick", "gpr.tick"]
    left_ms: Any = hints._redis().pttl(KICK_KEY)
    assert 0 < left_ms <= hints.KICK_MS


@pytest.mark.postgres_only
def test_a_kick_that_finds_another_worker_at_a_tick_is_left_to_the_next_one(own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_app, "send_task", lambda name, **how: None)
    monkeypatch.setattr(allocator, "tick", lambda **how: None)
    hint(TICK)

    tick_task()

    assert kick_taken()


@pytest.mark.postgres_only
def test_without_redis_a_kick_is_lost_and_nothing_else(own_redis: OwnRedis) -> None:
    own_redis.kill()

    hint(TICK)
    kick_taken()

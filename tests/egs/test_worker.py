"""The Celery worker when Redis goes away under it."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu.asynchronous import Hub
from kombu.entity import Queue
from kombu.messaging import Consumer

from egs.celery import app
from journal.hints import TICK_TASK
from tests.e2e.processes import START_S, wait_for
from tests.journal.redis_server import OwnRedis

pytestmark = pytest.mark.postgres_only


@pytest.fixture
def own_redis() -> Iterator[OwnRedis]:
    server = OwnRedis()
    server.start()
    yield server
    server.kill()


def take_from(channel: Any, queue: str) -> list[object]:
    """The messages that come from now on: none is acknowledged."""
    taken: list[object] = []
    Consumer(channel, [Queue(queue)], on_message=taken.append, accept=["json"]).consume()
    return taken


def test_a_worker_that_holds_a_wake_up_when_redis_goes_away_can_let_go_of_the_connection(own_redis: OwnRedis) -> None:
    connection: Any = app.connection_for_read(own_redis.url)
    connection.connect()
    hub = Hub()
    connection.transport.register_with_event_loop(connection.connection, hub)
    tasks, orders = connection.default_channel, connection.channel()  # a worker listens for orders too
    taken = take_from(tasks, "ticks")
    take_from(orders, "orders")
    with app.connection_for_write(own_redis.url) as sender:
        app.send_task(TICK_TASK, connection=sender, queue="ticks")
    loop = hub.create_loop()

    def has_one_and_waits() -> bool:
        next(loop)
        return bool(taken and tasks._in_poll and orders._in_poll)

    wait_for("a task, and both channels wait for more", has_one_and_waits, within_s=START_S)

    own_redis.kill()
    connection.collect()  # as the worker does, in this order

    connection.close()

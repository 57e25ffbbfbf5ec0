"""Sends hints: "something changed, look again".

They are sent after commit, may be lost, and carry no data.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import redis
import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)

TICK = "tick"
PLAN = "plan"  # starts of waiting GPRs have moved
INVENTORY = "inventory"  # nodes, GPUs or agents changed
ALERTS = "alerts"  # those for administrators
TEMPLATES = "templates"  # those of the platform
SLICE = "slice"  # the kind of all slice topics
USER = "user"  # the kind of all user topics
LOST = "lost"  # sent only within this process: Redis is away and hints are being missed
CHANNEL = "egs:hints"
# Many changes start one task: the first sets the key and sends the task, and the task deletes the key before it reads.
TICK_TASK, KICK_KEY, KICK_MS = "gpr.tick", "egs:kick", 2000
NOTICES_TASK = "journal.notices"
RECONNECT_S = 1.0
LOGGED_MOST = 5

Listener = Callable[[str], None]
_listeners: list[Listener] = []


def cluster_topic(cluster_id: UUID) -> str:
    return f"cluster:{cluster_id}"


def slice_topic(slice_id: UUID) -> str:
    return f"{SLICE}:{slice_id}"


def user_topic(user_id: UUID) -> str:
    return f"{USER}:{user_id}"


def kind_of(topic: str) -> str:
    return topic.partition(":")[0]


# The topics that each callback of a transaction, or of a savepoint within one, will send.
_topics_of: Final[WeakKeyDictionary[Callable[[], object], list[str]]] = WeakKeyDictionary()


def hint(*topics: str) -> None:
    connection = transaction.get_connection()
    savepoints = set(connection.savepoint_ids)
    for within, callback, _ in connection.run_on_commit:
        if within == savepoints and callback in _topics_of:
            _topics_of[callback] += topics
            return
    asked = list(topics)

    def send() -> None:  # when a robust callback fails, Django logs its __qualname__
        _send(list(dict.fromkeys(asked)))

    _topics_of[send] = asked
    transaction.on_commit(send, robust=True)


def listen(listener: Listener) -> None:
    """`listener` runs in any thread: it must be quick and must not raise."""
    _listeners.append(listener)
    if settings.EGS_REDIS_URL:
        _start_reader()


def unlisten(listener: Listener) -> None:
    _listeners.remove(listener)


def _send(topics: Sequence[str]) -> None:
    if not settings.EGS_REDIS_URL:
        for topic in topics:
            _deliver(topic)
        return
    try:
        with _redis().pipeline(transaction=False) as sent:  # a plan may have changed for thousands
            for topic in topics:
                sent.publish(CHANNEL, topic)
            if TICK in topics:
                sent.set(KICK_KEY, 1, nx=True, px=KICK_MS)
            *_, is_first = sent.execute()
        if TICK in topics and is_first:
            current_app.send_task(TICK_TASK, expires=KICK_MS / 1000, retry=False)
    except (redis.RedisError, OperationalError) as error:
        log.warning("hint_lost", topics=topics[:LOGGED_MOST], error=type(error).__name__)


def kick_taken() -> bool:
    """Tell whether there was a kick; True when Redis is away."""
    if not settings.EGS_REDIS_URL:
        return False
    try:
        return bool(_redis().delete(KICK_KEY))
    except redis.RedisError:
        return True


def kick_keep() -> None:
    """Leave a kick that was taken to the next tick, since another process ran one."""
    try:
        _redis().set(KICK_KEY, 1, px=KICK_MS)
    except redis.RedisError as error:
        log.warning("hint_lost", topic=TICK, error=type(error).__name__)


def _deliver(topic: str) -> None:
    for listener in tuple(_listeners):
        listener(topic)


_clients = threading.local()


def _redis() -> redis.Redis:
    client: redis.Redis | None = getattr(_clients, "client", None)
    if client is None:
        client = redis.Redis.from_url(settings.EGS_REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
        _clients.client = client
    return client


_reader_lock = threading.Lock()
_is_lost = threading.Event()
READER_NAME = "egs-hints"


def hints_flow() -> bool:
    """False while hints of other processes cannot arrive."""
    return not _is_lost.is_set()


def _start_reader() -> None:
    with _reader_lock:
        if not any(thread.name == READER_NAME for thread in threading.enumerate()):
            threading.Thread(target=_read_forever, name=READER_NAME, daemon=True).start()


def _read_forever() -> None:
    # No read timeout: an idle subscription is healthy, and TCP keep-alive finds a dead peer.
    client = redis.Redis.from_url(settings.EGS_REDIS_URL, socket_timeout=None, socket_keepalive=True)
    pause = threading.Event()
    while True:
        try:
            with client.pubsub(  # type: ignore[no-untyped-call]
                ignore_subscribe_messages=True
            ) as subscription:
                subscription.subscribe(CHANNEL)
                _is_lost.clear()
                for message in subscription.listen():
                    _deliver(message["data"].decode())
        except redis.RedisError as error:
            log.warning("hints_reconnect", error=type(error).__name__)
            if not _is_lost.is_set():
                _is_lost.set()
                _deliver(LOST)
            pause.wait(RECONNECT_S)

"""Hints: "something changed, look". Sent after commit, may be lost, never carry data.

TICK wakes the allocator; `cluster_topic(id)` the agent parked on that cluster's desired set; `slice_topic(id)`, PLAN and INVENTORY the
pages that show what changed; `user_topic(id)` those of a user whose rights changed. In one process a hint is a function call; over
several it travels by Redis. Everybody who listens also looks by himself now and then, so that a lost hint costs seconds, never the
change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID

import redis
import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)

TICK = "tick"
PLAN = "plan"  # starts of waiting GPRs have moved
INVENTORY = "inventory"  # nodes, GPUs or agents
SLICE = "slice"  # the kind of all slice topics
LOST = "lost"  # to listeners of this process alone: Redis is away, so from now on hints are missed
CHANNEL = "egs:hints"
# Many changes, one kick: the first asks for a task, the task takes the key away before it looks.
TICK_TASK, KICK_KEY, KICK_MS = "gpr.tick", "egs:kick", 2000
RECONNECT_S = 1.0

Listener = Callable[[str], None]
_listeners: list[Listener] = []


def cluster_topic(cluster_id: UUID) -> str:
    return f"cluster:{cluster_id}"


def slice_topic(slice_id: UUID) -> str:
    return f"{SLICE}:{slice_id}"


def user_topic(user_id: UUID) -> str:
    return f"user:{user_id}"


def kind_of(topic: str) -> str:
    return topic.partition(":")[0]


def hint(topic: str) -> None:
    """Send once the present transaction has committed (now, if there is none)."""
    # A function, not a partial: Django wants the name of a robust one that failed, and would fail itself.
    transaction.on_commit(lambda: _send(topic), robust=True)


def listen(listener: Listener) -> None:
    """Call `listener(topic)` for every hint, in whatever thread it arrives: it must be quick and must not raise."""
    _listeners.append(listener)
    if settings.EGS_REDIS_URL:
        _start_reader()


def unlisten(listener: Listener) -> None:
    _listeners.remove(listener)


def _send(topic: str) -> None:
    if not settings.EGS_REDIS_URL:
        _deliver(topic)
        return
    try:
        _redis().publish(CHANNEL, topic)
        if topic == TICK and _redis().set(KICK_KEY, 1, nx=True, px=KICK_MS):
            current_app.send_task(TICK_TASK, expires=KICK_MS / 1000, retry=False)
    except (redis.RedisError, OperationalError) as error:
        log.warning("hint_lost", topic=topic, error=type(error).__name__)


def kick_taken() -> bool:
    """The tick begins: changes from now on need another kick. Was it kicked? Yes, for all one knows, when Redis is away."""
    if not settings.EGS_REDIS_URL:
        return False
    try:
        return bool(_redis().delete(KICK_KEY))
    except redis.RedisError:
        return True


def _deliver(topic: str) -> None:
    for listener in tuple(_listeners):
        listener(topic)


_clients = threading.local()


def _redis() -> redis.Redis:
    """One client a thread and process; short time-outs, since a hint is not worth waiting for."""
    client: redis.Redis | None = getattr(_clients, "client", None)
    if client is None:
        client = redis.Redis.from_url(settings.EGS_REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
        _clients.client = client
    return client


_reader_lock = threading.Lock()
_is_lost = threading.Event()
READER_NAME = "egs-hints"


def hints_flow() -> bool:
    """False while this process listens and cannot hear the others."""
    return not _is_lost.is_set()


def _start_reader() -> None:
    """One reader a process, whoever listens."""
    with _reader_lock:
        if not any(thread.name == READER_NAME for thread in threading.enumerate()):
            threading.Thread(target=_read_forever, name=READER_NAME, daemon=True).start()


def _read_forever() -> None:
    # No read time-out: an idle subscription is healthy. TCP keep-alive finds a dead peer.
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

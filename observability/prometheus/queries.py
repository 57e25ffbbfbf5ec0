"""Asks a Prometheus by query_range: all expressions of a range at once, within some seconds.

It is not asked again while it does not answer, nor by many readers at once, nor soon after the same was asked.
"""

from __future__ import annotations

import base64
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Lock
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID
from weakref import WeakValueDictionary

from core.outbound import NotSent, post
from core.vault import SecretLost, decrypt
from observability.prometheus.expressions import Expression, NamedGpu, expressions, read
from observability.prometheus.models import Auth, PrometheusSource

TIMEOUT_S: Final = 8.0
ANSWER_MAX_BYTES: Final = 16 * 1024 * 1024
AT_ONCE: Final = 6
AWAY_S: Final = 30.0  # after a failure: nobody waits for it anew
_away: dict[tuple[UUID, str], tuple[float, str]] = {}  # by cluster and address: until when, and why

Values = Mapping[UUID, Mapping[float, Mapping[str, float]]]  # by GPU, end of the step and metric
KEPT_S: Final = 300.0  # answers; samples that come later are not in them
KEPT_MOST_COUNT: Final = 400_000  # values of all answers: some 30 MiB


class Unanswered(Exception):
    """`why` holds nothing of the answer and no address."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def values_over(source: PrometheusSource, gpus: Sequence[NamedGpu], *, since: datetime, until: datetime, step_s: int) -> Values:
    """Each value is of the step that ends then. Raises Unanswered."""
    key = (source.cluster_id, source.url)

    def ask() -> Values:
        until_mono, why = _away.get(key, (0.0, ""))
        if time.monotonic() < until_mono:
            raise Unanswered(why)
        try:
            found = _values_over(source, gpus, since, until, step_s)
        except Unanswered as error:
            _away[key] = (time.monotonic() + AWAY_S, error.why)
            raise
        _away.pop(key, None)
        return found

    # All that decides what it answers, so that readers share only what each of them would ask.
    secret = (source.auth, source.username, source.sealed, source.ca_pem)
    return _answers.take((*key, source.matchers, *secret, frozenset(gpus), since, until, step_s), ask)


def series_count(source: PrometheusSource, gpus: Sequence[NamedGpu], *, now: datetime) -> int:
    """Count these GPUs whose temperature of the last hour this Prometheus knows. Raises Unanswered."""
    wanted = next(each for each in expressions(gpus, step_s=3600, matchers=source.matchers) if each.metric == "temperature_c")
    return len(_ask(source, wanted, gpus, now, now, 3600, time.monotonic() + TIMEOUT_S))


def forget_answers() -> None:
    """Ask each Prometheus again, also one that did not answer a moment ago, since its settings may have changed."""
    _away.clear()
    _answers.clear()


class _Answers:
    """It keeps the last answers of this process. A caller who asks what is being asked already waits for that answer."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[float, int, Values]] = OrderedDict()  # until when, and how many values
        self._asked: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()  # locks
        self._lock, self._count = Lock(), 0

    def take(self, key: Hashable, ask: Callable[[], Values]) -> Values:
        with self._lock:
            asked = self._asked.setdefault(key, Lock())
        with asked:
            found = self._find(key)
            if found is None:
                found = ask()
                self._keep(key, found)
            return found

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self._count = 0

    def _find(self, key: Hashable) -> Values | None:
        with self._lock:
            until_mono, _, found = self._known.get(key, (0.0, 0, None))
            return found if time.monotonic() < until_mono else None

    def _keep(self, key: Hashable, values: Values) -> None:
        count = sum(len(point) + 1 for points in values.values() for point in points.values())
        if count > KEPT_MOST_COUNT:
            return
        with self._lock:
            self._count += count - self._known.pop(key, (0.0, 0, {}))[1]
            self._known[key] = (time.monotonic() + KEPT_S, count, values)
            while self._count > KEPT_MOST_COUNT:
                _, (_, gone, _) = self._known.popitem(last=False)
                self._count -= gone


_answers: Final = _Answers()


def _values_over(source: PrometheusSource, gpus: Sequence[NamedGpu], since: datetime, until: datetime, step_s: int) -> Values:
    wanted, until_mono = expressions(gpus, step_s=step_s, matchers=source.matchers), time.monotonic() + TIMEOUT_S
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="egs-prometheus") as pool:
        answers = list(pool.map(lambda each: _ask(source, each, gpus, since, until, step_s, until_mono), wanted))
    found: dict[UUID, dict[float, dict[str, float]]] = {}
    for expression, answer in zip(wanted, answers, strict=True):
        for key, points in answer.items():
            for at_s, value in points.items():
                found.setdefault(key, {}).setdefault(at_s, {})[expression.metric] = value
    return found


def _ask(
    source: PrometheusSource, wanted: Expression, gpus: Sequence[NamedGpu], since: datetime, until: datetime, step_s: int, until_mono: float
) -> dict[UUID, dict[float, float]]:
    left_s = until_mono - time.monotonic()
    if left_s <= 0.1:
        raise Unanswered(f"It did not answer within {TIMEOUT_S:.0f} s.")
    asked = {"query": wanted.text, "start": since.timestamp(), "end": until.timestamp(), "step": step_s, "timeout": f"{left_s:.3f}"}
    headers = {"Content-Type": "application/x-www-form-urlencoded", **_credentials(source)}
    url, body = f"{source.url.rstrip('/')}/api/v1/query_range", urlencode(asked).encode()
    try:
        answer = post(url, body=body, headers=headers, timeout_s=left_s, answer_max_bytes=ANSWER_MAX_BYTES, ca_pem=source.ca_pem)
    except NotSent as error:
        raise Unanswered(error.text) from None
    if answer.status != 200:
        raise Unanswered(f"It answered with status {answer.status}.")
    try:
        return read(wanted, _series(json.loads(answer.body)), gpus)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise Unanswered("Its answer is none of a Prometheus.") from None


def _series(body: Any) -> Any:
    return body["data"]["result"]


def _credentials(source: PrometheusSource) -> dict[str, str]:
    if source.auth == Auth.NONE:
        return {}
    try:
        secret = decrypt(source.sealed)
    except SecretLost:
        raise Unanswered("EGS cannot decrypt its token or password any more: set it anew.") from None
    if source.auth == Auth.BEARER:
        return {"Authorization": f"Bearer {secret}"}
    return {"Authorization": "Basic " + base64.b64encode(f"{source.username}:{secret}".encode()).decode()}

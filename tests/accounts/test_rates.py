from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from django.core.cache import cache
from django.test import Client

from core.clock import db_now
from tests import factories
from tests.api.conftest import Caller
from tests.builders import SHAPE
from tests.databases import travel

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _one_window() -> Iterator[None]:
    """No new minute begins within a test."""
    with travel(db_now().replace(second=10), tick=False):
        yield


def test_a_token_beyond_its_rate_is_told_when_to_try_again_and_others_go_on(settings: Any) -> None:
    settings.EGS_API_RATE_PER_MIN = 2
    busy, other = Caller(factories.token(factories.user("busy"))), Caller(factories.token(factories.user("other")))

    answers = [busy.get("me/") for _ in range(4)]

    assert answers[0].status_code == 200
    assert (answers[-1].status_code, answers[-1].json()["code"]) == (429, "throttled")
    assert 1 <= int(answers[-1]["Retry-After"]) <= 61
    assert other.get("me/").status_code == 200


def test_a_workspace_beyond_its_rate_waits_whoever_asks_and_other_workspaces_go_on(settings: Any) -> None:
    settings.EGS_WORKSPACE_RATE_PER_MIN = 2
    owner, cluster = factories.user("owner"), factories.cluster("aurora")
    callers = [Caller(factories.token(owner)) for _ in range(2)]
    for name in ("vision", "speech"):
        factories.make_slice(cluster, name=name, owner=owner)
    ask = {"slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}

    answers = [callers[count % 2].post("gprs/estimate/", ask) for count in range(3)]

    assert answers[-1].status_code == 429 != answers[0].status_code
    assert answers[-1].json()["code"] == "too_many_tries"
    assert 1 <= int(answers[-1]["Retry-After"]) <= 61
    assert callers[0].post("gprs/", {**ask, "name": "train"}).status_code == 429
    assert callers[0].post("gprs/estimate/", {**ask, "slice": "speech"}).status_code != 429


def test_without_redis_nobody_is_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise redis.ConnectionError

    settings.EGS_API_RATE_PER_MIN = settings.EGS_WORKSPACE_RATE_PER_MIN = 1
    for name in ("add", "incr", "get"):
        monkeypatch.setattr(cache, name, away)
    caller = Caller(factories.token(factories.user("ada")))

    assert [caller.get("me/").status_code for _ in range(3)] == [200] * 3


def test_guessing_tokens_is_stopped_for_a_minute(settings: Any) -> None:
    settings.EGS_REFUSED_SIGN_INS_PER_MIN = 3
    plain, guesser = factories.token(factories.user("ada")), Client(REMOTE_ADDR=f"2001:db8::{uuid4().hex[:4]}")

    answers = [guesser.post("/login/", {"token": "egsu_guess"}).status_code for _ in range(8)]

    assert (answers[0], answers[-1]) == (400, 429)
    refused = guesser.post("/login/", {"token": plain})
    assert (refused.status_code, 0 < int(refused.headers["Retry-After"]) <= 60) == (429, True)
    assert Client().post("/login/", {"token": plain}).status_code == 302

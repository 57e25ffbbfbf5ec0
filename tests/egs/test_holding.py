"""A list of Events that waits for news: who waits costs a task and nothing else, and hears of what he may see alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.signals import request_finished
from django.db import transaction

from accounts.models import ApiToken, User
from core.clock import db_now
from core.db_threads import DB_THREADS
from egs import holding
from egs.metrics import Receive, Scope, Send
from egs.runner import _close_connections
from journal import hints
from journal.models import Event
from journal.services import event_record
from journal.wakeups import Wakeups
from slices.models import Slice
from tests import factories
from tests.inventory.http import Response, request
from tests.inventory.test_views import backends, in_thread, parked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]
EVENTS = "/api/v1/events/"
SELDOM_S = 20.0
SOON_S = SELDOM_S / 2


@pytest.fixture(autouse=True)
def wakeups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wakeups]:
    """The server's own, fresh for each test; at its end nobody is held."""
    fresh = Wakeups()
    monkeypatch.setattr(holding, "wakeups", fresh)
    monkeypatch.setattr(holding, "LOOK_AGAIN_S", SELDOM_S)
    request_finished.connect(_close_connections)  # as `serve` does
    yield fresh
    request_finished.disconnect(_close_connections)
    if fresh._is_listening:
        hints.unlisten(fresh.wake)
    assert (fresh._waiting, holding._held_by) == ({}, {})


@dataclass(slots=True)
class Reader:
    secret: str
    etag: str = ""

    async def ask(self, wait_s: int = 20, *, leaves: asyncio.Event | None = None) -> Response:
        """Asks for what is new since the last answer."""
        headers = {"if-none-match": self.etag} if self.etag else {}
        answer = await request(f"{EVENTS}?wait_s={wait_s}", method="GET", bearer=self.secret, headers=headers, leaves=leaves)
        if answer is None:
            return Response()
        self.etag = answer.headers.get("ETag", self.etag)
        return answer


@pytest.fixture
def own() -> Slice:
    people = factories.make_people()
    factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner, viewers=[people.teammate])
    factories.make_slice(name="foreign", owner=people.outsider)
    return Slice.objects.get(name="vision")


@pytest.fixture
async def reader(own: Slice) -> Reader:
    made = Reader(await in_thread(token_of, "teammate"))
    assert (await made.ask()).status == 200, "it knows nothing yet, so it does not wait"
    return made


def token_of(name: str) -> str:
    return factories.token(User.objects.get(name=name))


def revoke(name: str) -> None:
    ApiToken.objects.filter(user__name=name).update(revoked_at=db_now())


def happens(slice_name: str, text: str = "It happened.") -> None:
    with transaction.atomic():
        event_record(kind="gpr.mark", message=text, at=db_now(), slice_id=Slice.objects.get(name=slice_name).pk)


def happens_without_a_hint(of: Slice) -> None:
    Event.objects.create(kind="gpr.mark", message="Nobody was told.", at=db_now(), slice_id=of.pk)


async def test_it_waits_for_an_event_that_its_reader_may_see_and_for_no_other(reader: Reader, wakeups: Wakeups) -> None:
    task, admins = asyncio.create_task(reader.ask()), Reader(await in_thread(token_of, "admin"))
    await admins.ask()
    await parked(wakeups)
    began = time.monotonic()

    await in_thread(happens, "foreign")
    assert (await admins.ask()).json["results"][0]["message"] == "It happened."
    await asyncio.sleep(0.5)
    assert not task.done()
    await in_thread(happens, "vision", "It is yours.")
    answer = await task

    assert (answer.status, answer.json["results"][0]["message"]) == (200, "It is yours.")
    assert "It happened." not in answer.body.decode()
    assert time.monotonic() - began < SOON_S
    assert (await reader.ask(wait_s=1)).status == 304


async def test_an_event_whose_hint_was_lost_comes_seconds_later(
    reader: Reader, own: Slice, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "LOOK_AGAIN_S", 0.5)
    task = asyncio.create_task(reader.ask())
    await parked(wakeups)

    await in_thread(happens_without_a_hint, own)

    assert (await asyncio.wait_for(task, timeout=SOON_S)).json["results"][0]["message"] == "Nobody was told."


async def test_a_token_that_ends_meanwhile_reads_nothing_more(reader: Reader, wakeups: Wakeups) -> None:
    task = asyncio.create_task(reader.ask())
    await parked(wakeups)

    await in_thread(revoke, "teammate")
    await in_thread(happens, "vision")

    assert (await asyncio.wait_for(task, timeout=SOON_S)).status == 401


async def test_many_hold_no_thread_and_no_connection_and_one_too_many_is_told(
    reader: Reader, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, connections = threading.active_count(), await in_thread(backends)
    held = [Reader(reader.secret, reader.etag) for _ in range(holding.ACCOUNT_MAX)]

    tasks = [asyncio.create_task(each.ask()) for each in held]
    await parked(wakeups, len(tasks))
    refusal = await reader.ask()
    in_flight = (threading.active_count(), await in_thread(backends))

    assert (refusal.status, refusal.json["code"]) == (429, "too_many_held")
    # Beside the pool: the one reader of hints.
    assert in_flight[0] <= threads + DB_THREADS + 1
    assert in_flight[1] <= connections + DB_THREADS
    await in_thread(happens, "vision")
    answers = await asyncio.wait_for(asyncio.gather(*tasks), timeout=60)
    assert {answer.status for answer in answers} == {200}


async def test_who_hangs_up_leaves_his_place_and_a_server_that_stops_answers_the_others(reader: Reader, wakeups: Wakeups) -> None:
    leaves = asyncio.Event()
    leaving, staying = (asyncio.create_task(Reader(reader.secret, reader.etag).ask(leaves=each)) for each in (leaves, None))
    await parked(wakeups, 2)

    leaves.set()
    assert (await asyncio.wait_for(leaving, timeout=SOON_S)).status == 0
    assert holding._held_by.total() == 1
    wakeups.close()

    assert (await asyncio.wait_for(staying, timeout=SOON_S)).status == 304


async def test_what_is_not_held_is_sent_piece_by_piece_whatever_its_address_says() -> None:
    sent: list[Any] = []

    async def long_file(scope: Scope, receive: Receive, send: Send) -> None:
        for piece in range(3):
            await send({"type": "http.response.body", "body": b"%d" % piece, "more_body": True})
            assert len(sent) == piece + 1, "it would fill the memory"

    async def receive() -> Any:
        await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    await holding.hold(long_file, {}, receive, send)
    assert len(sent) == 3

"""The page's socket: who may listen, what he hears, and when it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import Client

from accounts.models import ApiToken, Scope, User
from accounts.tokens.services import token_revoke
from core.clock import db_now
from core.db_threads import in_db_thread
from gpr.templates.services import template_create
from journal import hints
from journal.hints import INVENTORY, LOST, PLAN, hint, slice_topic
from journal.wakeups import Wakeups
from portal_shared import live
from portal_shared.live import BROKEN, FOREIGN, NO_HINTS, SIGNED_OUT, STOPPING
from portal_shared.shell import LIVE_URL
from slices.models import Role, Slice
from slices.services import member_remove, member_set
from tests import factories
from tests.databases import db_threads_let_go
from tests.e2e.processes import START_S, wait_for
from tests.pages.shared.socket import Socket

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "testserver"
QUIET_S = 0.6


@pytest.fixture(autouse=True)
def wakeups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wakeups]:
    """The server's own, fresh for each test; at its end nobody waits."""
    fresh = Wakeups()
    monkeypatch.setattr(live, "wakeups", fresh)
    yield fresh
    if fresh._is_listening:
        hints.unlisten(fresh.wake)
    assert not fresh._waiting


@pytest.fixture(autouse=True, scope="module")
def _pool_lets_go() -> Iterator[None]:
    """The test database can only be dropped when nobody is connected."""
    yield
    db_threads_let_go()


@pytest.fixture(autouse=True, scope="module")
def _hints_arrive() -> None:
    """The reader of this process has subscribed. Hints from before that are lost, as hints may be."""
    heard = threading.Event()

    def listener(_: str) -> None:
        heard.set()

    def arrives() -> bool:
        hints._send([PLAN])
        return heard.wait(0.1)

    hints.listen(listener)
    wait_for("a hint", arrives, within_s=START_S)
    hints.unlisten(listener)


@pytest.fixture
def ada() -> User:
    return factories.user("ada")


@pytest.fixture
def vision(ada: User) -> Slice:
    return factories.make_slice(factories.cluster(), name="vision", owner=ada)


def in_thread(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return in_db_thread(partial(work, *args, **kwargs))


def sign_in(user: User, *scopes: Scope) -> str:
    """Returns the session's cookie."""
    client = Client()
    client.post("/login/", {"token": factories.token(user, *scopes)})
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


def socket(cookie: str = "", *, origin: str = f"http://{HOST}", path: str = LIVE_URL, since_s: float | None = None) -> Socket:
    """Opens the socket of a page that was made at `since_s`, or now."""
    made_s = time.time() + 1 if since_s is None else since_s
    headers = {"host": HOST, "origin": origin, "cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}
    return Socket(path, headers=headers, query=f"since={made_s}")


@asynccontextmanager
async def listening(user: User, *scopes: Scope) -> AsyncIterator[Socket]:
    page = socket(await in_thread(sign_in, user, *scopes))
    assert await page.open() == 0
    yield page
    await page.leave()


@pytest.mark.both_databases
async def test_a_member_hears_of_his_workspace_and_nothing_but_topics(ada: User, vision: Slice) -> None:
    async with listening(ada) as page:
        await in_thread(hint, slice_topic(vision.pk))

        assert await page.heard() == {"topics": ["alerts", "gpr", "plan"]}


@pytest.mark.both_databases
async def test_a_stranger_hears_nothing_of_it(ada: User, vision: Slice) -> None:
    """He hears nothing of the plan and the nodes of all either: he could count by it what others do."""
    other = await in_thread(factories.user, "other")
    async with listening(other) as page:
        for topic in (slice_topic(vision.pk), PLAN, INVENTORY):
            await in_thread(hint, topic)

        assert await page.is_quiet(QUIET_S)
        await in_thread(_template_of_the_platform)  # it is everybody's
        assert await page.heard() == {"topics": ["gpr"]}


def _template_of_the_platform() -> None:
    template_create(slice_=None, change={"name": "training"}, actor=factories.user("root", is_admin=True), now=db_now())


async def test_an_administrator_hears_of_every_workspace(vision: Slice) -> None:
    root = await in_thread(factories.user, "root", is_admin=True)
    async with listening(root) as page:
        await in_thread(hint, slice_topic(vision.pk))

        assert "queue" in (await page.heard())["topics"]


async def test_an_administrator_by_a_token_without_that_scope_hears_as_a_member(vision: Slice) -> None:
    root = await in_thread(factories.user, "root", is_admin=True)
    async with listening(root, Scope.READ) as page:
        await in_thread(hint, slice_topic(vision.pk))

        assert await page.is_quiet(QUIET_S)


@pytest.mark.both_databases
async def test_a_burst_of_changes_is_one_message_for_each_gap(ada: User, vision: Slice) -> None:
    async with listening(ada) as page:
        began_s = time.monotonic()
        for _ in range(50):
            await in_thread(hint, slice_topic(vision.pk))
        took_s = time.monotonic() - began_s
        heard: list[str] = []
        while not await page.is_quiet(QUIET_S):
            heard.append((await page.heard())["topics"])

    assert 1 <= len(heard) <= 4 + took_s / live.GAP_S
    assert {name for topics in heard for name in topics} == {"alerts", "gpr", "plan"}


async def test_what_a_page_says_is_not_listened_to(ada: User, vision: Slice) -> None:
    async with listening(ada) as page:
        await page.say(text='{"join": "slice:*"}')
        await page.say(bytes=b"\x00")
        await in_thread(hint, slice_topic(vision.pk))

        assert (await page.heard())["topics"]


async def test_nobody_listens_without_a_login() -> None:
    page = socket("nobodys-session")
    await page.open()

    assert await page.closed() == SIGNED_OUT


@pytest.mark.parametrize("origin", ["https://evil.example", f"http://{HOST}:8001", f"http://{HOST}.evil.example", "null", ""])
async def test_a_page_of_another_site_is_not_let_in(origin: str, ada: User) -> None:
    assert await socket(await in_thread(sign_in, ada), origin=origin).open() == FOREIGN


async def test_there_is_one_socket_and_no_other_address(ada: User) -> None:
    assert await socket(await in_thread(sign_in, ada), path="/ws/other/").open() != 0


@pytest.mark.both_databases
async def test_signing_out_ends_the_open_pages_of_this_login(ada: User) -> None:
    client = Client()
    await in_thread(client.post, "/login/", {"token": await in_thread(factories.token, ada)})
    page = socket(client.cookies[settings.SESSION_COOKIE_NAME].value)
    await page.open()
    await asyncio.sleep(0.3)

    await in_thread(client.post, "/logout/")

    assert await page.closed() == SIGNED_OUT


@pytest.mark.both_databases
async def test_a_revoked_token_ends_its_pages_by_itself(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RECHECK_S", 0.5)
    page = socket(await in_thread(sign_in, ada))
    await page.open()

    token = await in_thread(ApiToken.objects.select_related("user").get)
    await in_thread(lambda: token_revoke(token=token, actor=token.user, now=db_now()))

    assert await page.closed() == SIGNED_OUT


@pytest.mark.both_databases
async def test_who_leaves_a_workspace_hears_of_it_no_more(ada: User, vision: Slice) -> None:
    ben = await in_thread(factories.user, "ben")
    await in_thread(lambda: member_set(slice_=vision, user=ben, role=Role.VIEWER, actor=None, now=db_now()))
    async with listening(ben) as page:
        await in_thread(lambda: member_remove(slice_=vision, user=ben, actor=ada, now=db_now()))
        while not await page.is_quiet(QUIET_S):
            await page.heard()
        await in_thread(hint, slice_topic(vision.pk))

        assert await page.is_quiet(QUIET_S)


async def test_who_joins_a_workspace_hears_of_it_from_then_on(vision: Slice) -> None:
    ben = await in_thread(factories.user, "ben")
    async with listening(ben) as page:
        await in_thread(lambda: member_set(slice_=vision, user=ben, role=Role.VIEWER, actor=None, now=db_now()))
        while not await page.is_quiet(QUIET_S):
            await page.heard()
        await in_thread(hint, slice_topic(vision.pk))

        assert "gpr" in (await page.heard())["topics"]


async def test_a_server_that_stops_lets_its_pages_go(ada: User, wakeups: Wakeups) -> None:
    page = socket(await in_thread(sign_in, ada))
    await page.open()
    await asyncio.sleep(0.3)

    wakeups.close()

    assert await page.closed() == STOPPING


@pytest.mark.both_databases
async def test_while_hints_are_lost_there_is_no_socket_so_that_the_page_polls(ada: User, wakeups: Wakeups) -> None:
    """Otherwise it would say that it is live, and show what is long over."""
    page = socket(await in_thread(sign_in, ada))
    await page.open()
    await asyncio.sleep(0.3)
    try:
        hints._is_lost.set()
        wakeups.wake(LOST)
        assert await page.closed() == NO_HINTS

        # A socket that opened first would look live each time that the page tries again.
        assert await socket(await in_thread(sign_in, ada)).open() == NO_HINTS
    finally:
        hints._is_lost.clear()


async def test_a_page_is_let_go_when_its_rights_cannot_be_looked_up_any_more(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would say that it is live for as long as the database is away, and hear nothing."""
    monkeypatch.setattr(live, "RECHECK_S", 0.3)
    page = socket(await in_thread(sign_in, ada))
    await page.open()

    def broken(session_key: str) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(live, "listener_of", broken)

    assert await page.closed() == BROKEN


@pytest.mark.both_databases
async def test_what_happened_between_making_the_page_and_its_joining_is_not_missed(ada: User, vision: Slice) -> None:
    cookie, made_at = await in_thread(sign_in, ada), await in_thread(db_now)
    quiet = socket(cookie, since_s=made_at.timestamp())
    await quiet.open()
    assert await quiet.is_quiet(QUIET_S)
    await quiet.leave()
    await in_thread(lambda: member_set(slice_=vision, user=factories.user("bob"), role=Role.OWNER, actor=None, now=db_now()))

    late = socket(cookie, since_s=made_at.timestamp())
    await late.open()

    assert await late.heard() == {"topics": ["alerts", "gpr", "gpus", "notices", "plan"]}
    await late.leave()


@pytest.mark.parametrize("query", ["", "since=", "since=soon", "since=nan", "since=-1e999"])
def test_an_address_that_does_not_say_when_the_page_was_made_means_long_ago(query: str) -> None:
    assert not live.made_s(query.encode()) > 0

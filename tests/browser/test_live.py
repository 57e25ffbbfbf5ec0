"""Hints, their loss, and what the page says of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.support.staged import Stage, page_around

pytestmark = pytest.mark.urls(__name__)
urlpatterns: list[object] = []

FACTS = '<p id="facts" hx-get="/facts/" hx-trigger="egs:gpr from:body" hx-target="this" hx-swap="outerHTML">facts</p>'
QUEUE = '<p id="queue" hx-get="/queue/" hx-trigger="egs:queue from:body, egs:plan from:body" hx-target="this" hx-swap="outerHTML">queue</p>'
LOADED_AT = datetime(2026, 11, 19, 12, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def stopped(stage: Stage) -> Stage:
    """The page's clock goes on only when told to."""
    stage.page.clock.install(time=LOADED_AT - timedelta(hours=1))  # it goes on until it is stopped
    stage.page.clock.pause_at(LOADED_AT)
    return stage


@pytest.fixture
def live_page(stopped: Stage) -> Stage:
    stopped.set(page_around(FACTS + QUEUE))
    stopped.answers["/facts/"], stopped.answers["/queue/"] = (200, FACTS, {}), (200, QUEUE, {})
    stopped.open()
    expect(stopped.page.locator("#live")).to_have_text("Live")
    return stopped


def go_on(on: Stage, span_s: int) -> None:
    """Second by second, so that answers come between."""
    for _ in range(span_s):
        on.page.clock.run_for(1_000)
        expect(on.page.locator(".htmx-request")).to_have_count(0)


def wait_for(on: Stage, *requests: str) -> None:
    on.wait_until(lambda: set(requests) <= set(on.asked))


def close_socket(on: Stage, code: int) -> None:
    """Closes it, and waits until the page knows of it."""
    on.value("addEventListener('htmx:wsClose', () => { window.hasLost = true; })")
    on.sockets[-1].close(code=code)
    on.page.wait_for_function("window.hasLost")


def test_a_hint_refetches_the_fragments_of_its_topic_and_no_other(live_page: Stage) -> None:
    on = live_page

    on.hint("gpr", "schedule")
    wait_for(on, "GET /facts/")
    go_on(on, 2)

    assert on.asked == ["GET /facts/"]
    assert on.watch.faults == []


def test_what_listens_to_two_topics_is_fetched_once_when_both_change(live_page: Stage) -> None:
    live_page.hint("plan", "queue")
    wait_for(live_page, "GET /queue/")
    go_on(live_page, 2)

    assert live_page.asked == ["GET /queue/"]


def test_a_burst_of_hints_is_fetched_at_most_once_a_second_and_the_last_is_not_lost(live_page: Stage) -> None:
    on = live_page
    for _ in range(10):
        on.hint("gpr")
    on.hint("queue")  # whoever has seen it has seen those before
    wait_for(on, "GET /queue/")
    assert on.count("GET /facts/") == 1

    go_on(on, 3)
    assert on.count("GET /facts/") == 2


def test_without_a_socket_the_page_polls_and_says_so_until_the_socket_is_back(live_page: Stage) -> None:
    on = live_page
    on.page.evaluate("htmx.config.wsReconnectDelay = () => 60000")
    close_socket(on, 1011)
    go_on(on, 7)
    expect(on.page.locator("#live")).to_have_text("Polling")

    go_on(on, 30)
    assert 2 <= on.count("GET /facts/") <= 3

    go_on(on, 30)
    expect(on.page.locator("#live")).to_have_text("Live")


def test_a_page_that_comes_back_online_catches_up(live_page: Stage) -> None:
    live_page.value("dispatchEvent(new Event('online'))")
    wait_for(live_page, "GET /facts/", "GET /queue/")
    go_on(live_page, 1)

    assert sorted(live_page.asked) == ["GET /facts/", "GET /queue/"]


def test_figures_that_are_no_longer_fresh_are_called_stale_until_they_are_fresh_again(live_page: Stage) -> None:
    on = live_page
    on.answers["/facts/"] = on.answers["/queue/"] = (503, "", {})
    on.hint("gpr", "queue")
    wait_for(on, "GET /facts/", "GET /queue/")
    go_on(on, 2)
    expect(on.page.locator("#live")).to_contain_text("Stale since")
    expect(on.page.get_by_text("This page is out of date.")).to_be_visible()

    on.answers["/facts/"], on.answers["/queue/"] = (200, FACTS, {}), (200, QUEUE, {})
    go_on(on, 16)
    expect(on.page.locator("#live")).to_have_text("Live")
    expect(on.page.get_by_text("This page is out of date.")).to_be_hidden()


def test_time_goes_on_without_an_answer_of_the_server(stopped: Stage) -> None:
    """The stage's clock begins at 12:08. The axis is an hour long from 12:00 on, and the box has run for 8 of 60 minutes."""
    hour = 'data-start="2026-11-19T12:00:00+00:00" data-end="2026-11-19T13:00:00+00:00"'
    strip = (
        f'<svg class="defs" id="a-defs" {hour}><g id="a-grid"></g><g id="a-grid-now"><line class="now-line" x1="13%" x2="13%"/></g></svg>'
        '<svg class="strip"><use href="#a-grid"/><rect class="box-elapsed goes-on" x="0%" width="13%"/>'
        '<rect class="box-frame" x="0%" width="16%"/></svg>'
    )
    times = '<time id="left" data-tick="left" datetime="2026-11-19T13:13:00+00:00">1 h 05 min left</time>'
    times += '<time id="ago" data-tick="ago" datetime="2026-11-19T12:08:00+00:00">now</time>'
    on = stopped
    on.set(page_around(strip + times + FACTS))
    on.answers["/facts/"] = (200, FACTS, {})
    on.open()

    on.page.clock.run_for(65_000)

    assert (on.says("#left"), on.says("#ago")) == ("1 h 04 min left", "1 min ago")
    x = float(on.value("document.querySelector('.now-line').getAttribute('x1')").rstrip("%"))
    assert 15.1 < x < 15.4  # 12:09:05, in steps of five seconds
    assert on.value("document.querySelector('.box-elapsed').getAttribute('width')") == f"{x:.2f}%"
    on.page.clock.run_for(120_000)
    assert on.value("document.querySelector('.box-elapsed').getAttribute('width')") == "16.00%"  # no longer than the box
    expect(on.page.locator("#live")).to_have_text("Live")
    wait_for(on, "GET /facts/")  # what only the server knows is asked for once a minute


def test_a_hub_that_stops_in_order_is_connected_to_again(live_page: Stage) -> None:
    close_socket(live_page, 1001)
    go_on(live_page, 3)

    live_page.wait_until(lambda: len(live_page.sockets) == 2)
    expect(live_page.page.locator("#live")).to_have_text("Live")


def test_a_page_whose_login_ended_goes_to_the_login_page(live_page: Stage) -> None:
    live_page.sockets[-1].close(code=4401)

    live_page.page.wait_for_url("**/login/?next=%2F")

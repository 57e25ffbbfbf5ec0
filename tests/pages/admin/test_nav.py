"""The navigation of the admin portal: how many wait stands beside the queue on every page, and follows it."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.pages.admin_world import HTMX, QUERIES_MAX, AdminWorld, queue_up
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

COUNT = "/admin/queue/count/"
# The session, the token, the count; on PostgreSQL the clock, too.
COUNT_QUERIES = 3


def pages_of(admin_world: AdminWorld) -> list[str]:
    node = admin_world.cluster.nodes.first()
    assert node is not None
    lists = ["/admin/queue/", "/admin/inventory/", "/admin/clusters/", "/admin/quotas/", "/admin/schedule/", "/admin/schedule/?as=table"]
    own = [f"/admin/queue/{admin_world.waits.pk}/", f"/admin/inventory/{node.pk}/"]
    questions = [f"/admin/inventory/{node.pk}/cordon/", f"/admin/clusters/{admin_world.cluster.pk}/disable/"]
    return [*lists, *own, *questions]


def counts_in(markup: str) -> list[str]:
    found = re.findall(r'<span class="count[^>]*>([^<]*)<span class="visually-hidden">([^<]*)</span></span>', markup)
    return [f"{number}{noun}" for number, noun in found]


def queries(client: Client, path: str, headers: dict[str, str] | None = None) -> int:
    with CaptureQueriesContext(connection) as made:
        assert client.get(path, headers=headers or {}).status_code == 200, path
    return len(made)


def test_every_page_says_how_many_wait_and_where_to_ask_again(admin_world: AdminWorld, admin: Client) -> None:
    for path in pages_of(admin_world):
        shown = admin.get(path).content.decode()
        assert counts_in(shown)[:2] == ["1 waiting", "1 request waits for you"], path
        assert shown.count(f'hx-get="{COUNT}"') == 1, path
        assert 'hx-trigger="egs:queue from:body"' in shown, path


def test_the_count_is_refetched_alone_and_follows_the_queue(admin_world: AdminWorld, admin: Client) -> None:
    admin_world.held.delete()
    queue_up(admin_world, 11)

    shown = admin.get(COUNT, headers=HTMX).content.decode()

    assert shown.startswith("<span")
    assert counts_in(shown) == ["12 waiting"]
    assert "count-alert" not in shown


def test_the_count_costs_one_query_however_long_the_queue_is(admin_world: AdminWorld, admin: Client) -> None:
    few = [queries(admin, path) for path in (COUNT, *pages_of(admin_world))]
    queue_up(admin_world, 60)

    many = [queries(admin, path) for path in (COUNT, *pages_of(admin_world))]

    assert many[0] == few[0] == COUNT_QUERIES + (connection.vendor == "postgresql")
    assert max(many) <= QUERIES_MAX


def test_a_fragment_counts_nothing(admin_world: AdminWorld, admin: Client) -> None:
    for path in (f"/admin/queue/{admin_world.waits.pk}/", "/admin/clusters/"):
        assert queries(admin, path) - queries(admin, path, HTMX) == 2  # the queue, and alerts


@pytest.mark.parametrize("persona", ["owner", "teammate", "outsider"])
def test_the_length_of_the_queue_is_for_administrators(persona: str, admin_world: AdminWorld) -> None:
    assert client_of(getattr(admin_world.people, persona)).get(COUNT).status_code == 404

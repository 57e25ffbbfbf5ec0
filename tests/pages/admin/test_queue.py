"""The queue of the admin portal: who may see it, what it shows, how it is filtered and paged, and what it costs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr, GprState, PromiseMove
from planner.causes import Cause
from portal_shared.parts.paging import PAGE_ROWS
from tests import factories
from tests.pages.admin_world import HTMX, QUERIES_MAX, AdminWorld, queue_up
from tests.pages.user_world import client_of

# Each day: tests/api/queue/test_queue.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

QUEUE = "/admin/queue/"


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return str(response.content.decode())


def names(markup: str) -> list[str]:
    return re.findall(r'<a class="strong"[^>]*>([^<]+)</a>', markup)


def pages_of(admin_world: AdminWorld) -> list[str]:
    acts = [
        f"{QUEUE}{gpr.pk}/{act}/"
        for gpr, act in ((admin_world.waits, "priority"), (admin_world.held, "approve"), (admin_world.runs, "evict"))
    ]
    node = admin_world.cluster.nodes.first()
    assert node is not None
    lists = [
        "/admin/",
        QUEUE,
        "/admin/inventory/",
        "/admin/clusters/",
        "/admin/evictions/",
        "/admin/schedule/",
        "/admin/schedule/?as=table",
    ]
    own = ["/admin/evictions/", f"{QUEUE}{admin_world.waits.pk}/", f"/admin/inventory/{node.pk}/", f"/admin/inventory/{node.pk}/cordon/"]
    return [*lists, *own, *acts, f"/admin/clusters/{admin_world.cluster.pk}/join-token/"]


@pytest.mark.daily
@pytest.mark.parametrize("persona", ["owner", "teammate", "outsider"])
def test_for_everybody_but_administrators_the_portal_does_not_exist(persona: str, admin_world: AdminWorld) -> None:
    client = client_of(getattr(admin_world.people, persona))

    assert {client.get(path).status_code for path in pages_of(admin_world)} == {404}
    assert client.post(f"{QUEUE}{admin_world.waits.pk}/reject/", {"version": admin_world.waits.version, "why": "x"}).status_code == 404


@pytest.mark.daily
def test_a_stranger_is_led_to_the_login_and_an_administrator_sees_every_page(admin_world: AdminWorld, admin: Client) -> None:
    assert Client().get(QUEUE)["Location"].startswith("/login/")
    assert {admin.get(path, follow=True).status_code for path in pages_of(admin_world)} == {200}
    assert admin.get("/admin/")["Location"] == QUEUE


def test_it_shows_what_needs_approval_then_the_queue_then_what_runs(admin: Client) -> None:
    shown = text(admin.get(QUEUE))

    assert names(shown) == ["held-back", "waits", "runs"]
    assert "It waits for the GPUs of runs" in shown
    assert "Rows 1 to 1" in shown


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"state": "queued"}, ["waits"]),
        ({"state": "approval"}, ["held-back"]),
        ({"state": "running"}, ["runs"]),
        ({"state": "late"}, []),
        ({"workspace": "vision"}, ["runs"]),
        ({"workspace": "nobody"}, []),
        ({"shape": "A10-24GB"}, []),
        ({"q": "WAIT"}, ["waits"]),
        ({"q": "speech"}, ["held-back", "waits"]),
        ({"q": "100%_"}, []),
        ({"q": "a\x00b"}, []),
        ({"q": str(uuid4())}, []),
        ({"q": "x" * 5000}, []),
    ],
)
def test_filters_stand_in_the_url(filters: dict[str, str], found: list[str], admin: Client) -> None:
    assert names(text(admin.get(QUEUE, filters))) == found


@pytest.mark.parametrize("written", ["{id}", "{short}", "gpr-{short}", " {short} "])
def test_one_is_found_by_its_id_whole_or_as_pages_show_it(written: str, admin_world: AdminWorld, admin: Client) -> None:
    pk = str(admin_world.waits.pk)
    assert pk[:8] in text(admin.get(f"{QUEUE}{pk}/"))

    assert names(text(admin.get(QUEUE, {"q": written.format(id=pk, short=pk[:8])}))) == ["waits"]


def test_requests_are_listed_by_planned_start_page_by_page_and_places_go_on(admin_world: AdminWorld, admin: Client) -> None:
    queue_up(admin_world, 2 * PAGE_ROWS)
    queued = list(Gpr.objects.filter(state=GprState.QUEUED).order_by("id"))
    for minutes, gpr in enumerate(queued):  # ids, and so the starts, are in another order than the requests were filed in
        gpr.planned_start_at = db_now() + timedelta(minutes=minutes)
    Gpr.objects.bulk_update(queued, ["planned_start_at"])
    path, seen, places = f"{QUEUE}?state=queued", list[str](), list[int]()
    while path:
        shown = text(admin.get(path))
        seen += names(shown)
        places += [int(place) for place in re.findall(r'<td class="num muted narrow-hide">\s*(\d+)\s*</td>', shown)]
        following = re.search(r'href="([^"]+)" rel="next"', shown)
        path = following[1].replace("&amp;", "&") if following else ""

    assert seen == [gpr.name for gpr in queued]
    assert places == list(range(1, 2 * PAGE_ROWS + 2))


def test_places_count_the_whole_queue_also_where_filters_apply(admin_world: AdminWorld, admin: Client) -> None:
    queue_up(admin_world, 5)
    Gpr.objects.filter(pk=admin_world.waits.pk).update(priority=1)

    assert re.search(r'<td class="num muted narrow-hide">\s*6\s*</td>', text(admin.get(QUEUE, {"q": "waits"})))


@pytest.mark.parametrize("cursor", ["x", "e30=", "bnVsbA==", "W3RydWUsW11d", "\x00", "9" * 5000])
def test_what_is_no_cursor_is_answered_with_words(cursor: str, admin: Client) -> None:
    for path in (QUEUE, "/admin/inventory/"):
        response = admin.get(f"{path}?{urlencode({'cursor': cursor})}")
        assert response.status_code == 400
        assert b"no such page of this list" in response.content


def test_free_gpus_of_one_shape_are_never_summed_with_those_of_another(admin_world: AdminWorld, admin: Client) -> None:
    """GPUs of two shapes together are no figure that anybody could ask for."""
    factories.add_nodes(admin_world.cluster, 3, gpus=4, shape="L40S-48GB", memory_gib=48)
    mixed = ("12 of 28", "3 of 5", "28 GPUs")

    pages = [text(client.get(path)) for client, path in (
        (admin, QUEUE), (admin, "/admin/inventory/"), (admin, "/admin/clusters/"),
        (client_of(admin_world.people.owner), "/"), (client_of(admin_world.people.owner), "/workspaces/vision/"),
    )]  # fmt: skip

    said = [" ".join(re.sub(r"<[^>]+>", " ", page).split()) for page in pages]
    assert [figure for figure in mixed for page in said if figure in page] == []
    queue, inventory, clusters, home, workspace = said
    assert "GPUs free, H100-80GB 0 of 16 L40S-48GB: 12 of 12" in queue
    assert "3 nodes, 12 of 12 GPUs free" in inventory
    assert "0 of 12" in clusters
    for page in (home, workspace):
        assert "L40S-48GB 3 of 3 nodes" in page


def test_an_empty_queue_says_so(admin: Client) -> None:
    assert "No requests" in text(admin.get(QUEUE, {"state": "late"}))
    assert "No requests match these filters" in text(admin.get(QUEUE, {"q": "zzz"}))


def test_a_fragment_is_only_the_fragment(admin: Client) -> None:
    facts, rows = text(admin.get(QUEUE, {"part": "facts"})), text(admin.get(QUEUE, {"part": "rows"}))

    assert facts.strip().startswith("<dl")
    assert 'id="queue-facts"' in facts
    assert rows.strip().startswith("<div")
    assert names(rows) == ["held-back", "waits", "runs"]
    assert "<html" not in facts + rows


def test_the_inspector_says_why_and_offers_what_the_state_allows(admin_world: AdminWorld, admin: Client) -> None:
    PromiseMove.objects.create(
        gpr=admin_world.waits,
        at=db_now(),
        old_start_at=db_now(),
        new_start_at=db_now(),
        cause=Cause.OVERRUN,
        cause_id=str(admin_world.runs.pk),
    )
    shown = {
        gpr.name: text(admin.get(f"{QUEUE}{gpr.pk}/", headers=HTMX)) for gpr in (admin_world.waits, admin_world.held, admin_world.runs)
    }

    assert "runs gave its nodes back late" in shown["waits"]
    acts = {name: set(re.findall(r"/(priority|evict|reject|approve)/\"\s+hx-get", markup)) for name, markup in shown.items()}
    assert acts == {"waits": {"priority", "reject"}, "held-back": {"approve", "priority", "reject"}, "runs": {"evict"}}
    assert shown["waits"].strip().startswith("<section")


def test_the_page_of_a_gpr_refetches_its_head_and_its_body(admin_world: AdminWorld, admin: Client) -> None:
    url = f"{QUEUE}{admin_world.waits.pk}/"
    whole = text(admin.get(url))

    for part in ("head", "body"):
        shown = text(admin.get(url, {"part": part}, headers=HTMX)).strip()
        assert shown.startswith("<div")
        assert f'id="inspect-{part}"' in shown
        assert f'hx-get="{url}?part={part}"' in shown
        assert f'hx-get="{url}?part={part}"' in whole
    # The inspector in it is fetched with it, not once more.
    assert f'hx-get="{url}"' not in whole


def test_the_inspector_of_nothing_is_not_found(admin: Client) -> None:
    assert admin.get(f"{QUEUE}{uuid4()}/").status_code == 404
    assert admin.get(f"{QUEUE}not-an-id/").status_code == 404


@pytest.mark.parametrize("part", ["", "facts", "rows"])
def test_a_thousand_rows_cost_what_ten_cost(part: str, admin_world: AdminWorld, admin: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            text(admin.get(QUEUE, {"part": part}))
        return len(queries)

    queue_up(admin_world, 10)
    few = cost()
    queue_up(admin_world, 990)

    assert cost() == few <= QUERIES_MAX

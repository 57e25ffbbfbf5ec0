"""The schedule: where boxes stand, which window is shown, and what it costs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from core.pages.axis import Axis
from core.pages.node_strip import NodeBox
from inventory.models import Node, Reservation
from portal_admin.pages.plan.schedule import SPANS
from portal_admin.pages.plan.schedule_layout import Drawing, Stay, draw, free_steps
from tests import factories
from tests.builders import NOW
from tests.pages.admin_world import QUERIES_MAX, AdminWorld, queue_up

# Each day: tests/api/queue/test_schedule.py, and test_every_page.py
pytestmark = pytest.mark.rotates

SCHEDULE = "/admin/schedule/"
AXIS = Axis(NOW - timedelta(hours=1), NOW + timedelta(hours=9), NOW, UTC)


def stay(key: str, start_h: float, end_h: float, kind: str = "held") -> Stay:
    return Stay(key, NodeBox(kind, NOW + timedelta(hours=start_h), NOW + timedelta(hours=end_h), key))


def boxes(drawing: Drawing) -> list[tuple[int, str, int, bool]]:
    """Top, name, rows high, whether it repeats one that is linked already."""
    return [(row.top, drawn.box.name, drawn.box.row_count, drawn.box.is_repeat) for row in drawing.rows for drawn in row.boxes]


def test_a_box_on_nodes_under_each_other_is_drawn_once() -> None:
    drawing = draw([[stay("a", 0, 2)], [stay("a", 0, 2)], [stay("b", 0, 2)], [stay("a", 0, 2)]], AXIS)

    assert boxes(drawing) == [(0, "a", 2, False), (38, "b", 1, False), (57, "a", 1, True)]
    assert (drawing.height, drawing.lanes) == (76, (1, 1, 1, 1))


def test_the_same_gpr_at_another_time_is_another_box() -> None:
    drawing = draw([[stay("a", 0, 2)], [stay("a", 0, 3)]], AXIS)

    assert [found[2] for found in boxes(drawing)] == [1, 1]


def test_boxes_that_share_a_node_have_a_lane_each_and_the_rows_below_move_down() -> None:
    drawing = draw([[stay("a", 0, 4), stay("b", 1, 2), stay("c", 2, 3)], [stay("d", 0, 1)]], AXIS)

    assert drawing.lanes == (2, 1)
    assert boxes(drawing) == [(0, "a", 1, False), (19, "b", 1, False), (19, "c", 1, False), (38, "d", 1, False)]


def test_free_nodes_are_counted_from_now_on() -> None:
    """One of two nodes is busy for two hours, the other from hour one to three."""
    steps = free_steps([[stay("a", -1, 2)], [stay("b", 1, 3), stay("c", 1.5, 2.5)]], AXIS)

    assert [(step.x, step.count) for step in steps] == [("10.00%", "1"), ("30.00%", "1"), ("40.00%", "2")]


def test_a_cluster_without_nodes_draws_nothing() -> None:
    assert boxes(draw([], AXIS)) == []
    assert free_steps([], AXIS) == ()


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return str(response.content.decode())


def test_it_shows_what_holds_each_node_and_what_is_planned(admin: Client) -> None:
    shown = text(admin.get(SCHEDULE))

    assert re.search(r"<title>runs, vision\. Held [^<]+", shown)
    assert re.search(r"<title>(SP: )?waits, speech\. Planned [^<]+", shown)
    assert "0 of 2 free" in shown


def test_a_node_that_is_set_aside_is_hatched_with_its_reason(admin_world: AdminWorld, admin: Client) -> None:
    factories.add_nodes(admin_world.cluster, 1)
    Node.objects.filter(name="aurora-2").update(cordoned_at=db_now(), cordon_reason="Xid 79")

    assert "Set aside: Xid 79" in text(admin.get(SCHEDULE))


def test_with_a_workspace_all_others_are_grey(admin: Client) -> None:
    shown = text(admin.get(SCHEDULE, {"workspace": "speech"}))

    assert re.search(r'class="ws-h8">\s*<title>runs', shown)
    assert not re.search(r'class="ws-h8">\s*<title>[^<]*waits', shown)


def test_the_table_tells_the_same(admin: Client) -> None:
    shown = text(admin.get(SCHEDULE, {"as": "table"}))

    assert '<svg class="strip sched-cluster"' not in shown
    assert ">runs<" in shown
    assert ">waits<" in shown
    assert "aurora-0, aurora-1" in shown


@pytest.mark.parametrize(
    "given",
    [
        "2026-11-20T10:00:00+00:00",
        "2026-11-20T10:00",
        "2026-13-40",
        "yesterday",
        "",
        "\x00",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-12:00",
        "2026-11-20T10:00:00 00:00",
        "9" * 500,
    ],
)
@pytest.mark.parametrize("span", ["7d", "9y", *(pytest.param(other, marks=pytest.mark.soak) for other in ("6h", ""))])
def test_any_window_that_is_asked_for_is_answered(given: str, span: str, admin: Client) -> None:
    for more in ("", "&as=table", "&part=head"):
        assert admin.get(f"{SCHEDULE}?from={quote(given)}&span={span}{more}").status_code == 200


@pytest.mark.parametrize(("span", "keys"), [("6h", {"-"}), ("24h", {"+", "-"}), ("3d", {"+", "-"}), ("7d", {"+"})])
def test_the_keys_of_zooming_lead_to_the_next_span_and_keep_the_middle(span: str, keys: set[str], admin: Client) -> None:
    start = (NOW + timedelta(days=9)).replace(hour=8)
    shown = text(admin.get(SCHEDULE, {"span": span, "from": start.isoformat()}))

    zooms = {key: parse_qs(urlsplit(unescape(url)).query) for url, key in re.findall(r'href="([^"]+)"[^>]* data-key="([+-])"', shown)}

    assert set(zooms) == keys
    for key, query in zooms.items():
        (there,) = query["span"]
        assert (SPANS[there] < SPANS[span]) == (key == "+")
        assert datetime.fromisoformat(query["from"][0]) + SPANS[there] / 2 == start + SPANS[span] / 2


def test_zooming_around_now_stays_around_now(admin: Client) -> None:
    shown = text(admin.get(SCHEDULE))

    assert re.findall(r'href="[^"]*span=(\w+)" [^>]*data-key="([+-])"', shown) == [("6h", "+"), ("3d", "-")]


def test_many_nodes_are_fetched_part_by_part_as_they_come_into_view(admin_world: AdminWorld, admin: Client) -> None:
    far = factories.cluster("zenith", nodes=70)
    shown = text(admin.get(SCHEDULE))

    later = re.findall(rf'id="schedule-{far.pk}-\d+"\s+hx-get="([^"]+)"\s+hx-trigger="intersect once"', shown)
    assert "zenith-69" not in shown
    parts = [text(admin.get(unescape(url))) for url in later]
    names = [re.findall(r'title="(zenith-\d+)"', part) for part in parts]
    assert [len(of_part) for of_part in names] == [30, 30, 10]
    assert len({name for of_part in names for name in of_part}) == 70
    assert ["70 of 70 free" in part for part in parts] == [True, False, False]
    assert all('hx-trigger="egs:schedule from:body"' in part for part in parts)
    assert admin.get(SCHEDULE, {"part": str(far.pk), "node": "x"}).status_code == 200
    assert admin.get(SCHEDULE, {"part": str(uuid4())}).status_code == 404
    assert admin.get(SCHEDULE, {"part": "\x00"}).status_code == 404


def test_a_page_of_shared_nodes_with_many_boxes_stays_small(admin_world: AdminWorld, admin: Client) -> None:
    """Each of the nodes that are drawn at once has sixteen boxes."""
    cluster, now, hour = admin_world.cluster, db_now(), timedelta(hours=1)
    factories.add_nodes(cluster, 60)
    gpr, rows = admin_world.runs, []
    for node in cluster.nodes.filter(reservations=None):
        for number in range(16):
            starts_at = now + (number // 8 - 0.5) * 4 * hour
            given = {"state": "RELEASED", "released_at": now, "starts_at": starts_at, "ends_at": starts_at + 3 * hour, "gang_count": 1}
            of = {"gpr": gpr, "slice_id": gpr.slice_id, "node": node, "cluster": cluster, "epoch": number, "run": number}
            rows.append(Reservation(**of, **given, enter_by_at=now, duration_s=60, phase="RELEASED"))
    Reservation.objects.bulk_create(rows)

    shown = admin.get(SCHEDULE).content

    assert shown.count(b"<title>runs") > 400
    assert len(shown) < 300_000


@pytest.mark.parametrize("form", ["", "table"])
def test_a_hundred_rows_cost_what_ten_cost(form: str, admin_world: AdminWorld, admin: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            text(admin.get(SCHEDULE, {"as": form}))
        return len(queries)

    def more(count: int) -> None:
        queue_up(admin_world, count)
        factories.add_nodes(admin_world.cluster, count // 10)
        for _ in range(count // 10):
            factories.cluster(nodes=1)

    more(10)
    few = cost()
    more(90)

    assert cost() == few <= QUERIES_MAX

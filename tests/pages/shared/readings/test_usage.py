"""Both portals show the use of a month: figures, links, prices, the league, and CSV."""

from __future__ import annotations

import csv
import io
import re
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gpr.models import Gpr, ShapePrice, UsageDay
from slices.models import Project, ProjectAdmin
from tests import factories
from tests.builders import SHAPE
from tests.factories import usage_day
from tests.pages.admin_world import HTMX, QUERIES_MAX, AdminWorld
from tests.pages.user_world import client_of, text

pytestmark = pytest.mark.django_db

OWN, ALL = "/usage/", "/admin/usage/"
MONTH = datetime.now(UTC).date().replace(day=1)


@pytest.fixture
def world(admin_world: AdminWorld) -> AdminWorld:
    """`runs` of vision and `held-back` of speech used GPUs on the first of the month, and `runs` in the month before."""
    usage_day(admin_world.runs, MONTH, held=100, measured=80, worked=20)
    usage_day(admin_world.held, MONTH, held=40, measured=40, worked=30)
    usage_day(admin_world.runs, MONTH - timedelta(days=1), held=7)
    return admin_world


def rows(markup: str) -> list[list[str]]:
    found = re.findall(r'<tr id="usage-[^"]*"[^>]*>(.*?)</tr>', markup, re.S)
    return [[re.sub(r"<[^>]+>|\s+", " ", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)] for row in found]


def test_each_sees_the_month_of_what_is_his_and_an_administrator_all(world: AdminWorld, admin: Client) -> None:
    owner, outsider = client_of(world.people.owner), client_of(world.people.outsider)

    mine, his, all_ = (text(client.get(url)) for client, url in ((owner, OWN), (outsider, OWN), (admin, ALL)))

    assert [row[1:] for row in rows(mine)] == [["100 h", "20 h", "60 h", "20 h", "25 %", "no price"]]
    assert "speech" not in mine
    assert "held-back" not in text(owner.get(OWN, {"by": "gpr"}))
    assert [row[1] for row in rows(his)] == ["40 h"]
    assert [row[1] for row in rows(all_)] == ["100 h", "40 h"]
    assert [row[1] for row in rows(text(owner.get(OWN, {"month": f"{MONTH - timedelta(days=1):%Y-%m}"})))] == ["7 h"]
    assert rows(text(outsider.get(OWN, {"workspace": "vision"}))) == []
    assert "No GPUs were held in this month" in text(owner.get(OWN, {"month": "2020-02"}))


def test_a_day_without_boxes_is_one_of_no_hours_in_the_chart(world: AdminWorld, admin: Client) -> None:
    usage_day(world.runs, MONTH + timedelta(days=2), held=5)

    twin = text(admin.get(ALL)).split('id="usage-twin"')[1].split("</table>")[0]

    figures = re.findall(r'<td class="num">([^<]*)</td>', twin)
    assert [sorted(figures[first : first + 3]) for first in (0, 3, 6)] == [["140.0", "50.0", "70.0"], ["0.0"] * 3, ["0.0", "0.0", "5.0"]]


def test_a_row_opens_what_it_consists_of(world: AdminWorld, admin: Client) -> None:
    for query in ({"by": "project"}, {"by": "slice"}, {"by": "person"}):
        markup = text(admin.get(ALL, query))
        links = re.findall(r'<tr id="usage-[^"]*"[^>]*>\s*<td>\s*<a class="strong" href="([^"]+)"', markup)
        assert links
        opened = rows(text(admin.get(links[0].replace("&amp;", "&"))))
        assert sum(float(row[1].split()[0]) for row in opened) in {100, 40, 140}
    assert f"/admin/queue/{world.runs.pk}/" in text(admin.get(ALL, {"by": "gpr"}))


def test_prices_make_costs_and_only_administrators_set_them(world: AdminWorld, admin: Client) -> None:
    given = {"shape": SHAPE, "gpu_hour_price": "2.5", "from_day": str(MONTH)}
    assert client_of(world.people.owner).post("/admin/usage/prices/set/", given).status_code == 404
    admin.post("/admin/usage/prices/set/", given, headers=HTMX)

    assert [row[-1] for row in rows(text(admin.get(ALL)))] == ["250.00", "100.00"]
    assert "Set a price" not in text(client_of(world.people.owner).get(OWN))
    price = ShapePrice.objects.get()
    admin.post(f"/admin/usage/prices/{price.pk}/delete/", headers=HTMX)
    assert [row[-1] for row in rows(text(admin.get(ALL)))] == ["no price"] * 2


def test_a_member_sees_his_place_and_an_administrator_of_the_project_takes_it_out_of_the_league(world: AdminWorld) -> None:
    project = world.slice.project
    second = factories.make_slice(world.cluster, name="second-ws", owner=world.people.admin, of=project)
    usage_day(factories.gpr(second, world.people.admin), MONTH, held=9, measured=8, worked=6)
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=project, user=runner, created_at=world.slice.created_at)
    owner, runs_it = client_of(world.people.owner), client_of(runner)

    markup = text(owner.get(OWN))
    assert ("Efficiency league" in markup, "second-ws" in markup) == (True, False)
    switch = f"/usage/projects/{project.pk}/league/"
    assert owner.post(switch, headers=HTMX).status_code == 404
    assert "second-ws" in text(runs_it.get(OWN))
    runs_it.post(switch, headers=HTMX)

    assert not Project.objects.get(pk=project.pk).in_league
    assert "Efficiency league" not in text(owner.get(OWN))
    assert "Put in" in text(runs_it.get(OWN))


def test_csv_has_a_row_for_each_day_and_no_cell_that_a_spreadsheet_runs(world: AdminWorld) -> None:
    Gpr.objects.filter(pk=world.runs.pk).update(name="=cmd")
    usage_day(world.runs, MONTH + timedelta(days=1), held=1)

    answer = client_of(world.people.owner).get(f"{OWN}usage.csv", {"by": "gpr"})

    head, *lines = csv.reader(io.StringIO(answer.getvalue().decode()))
    assert answer["Content-Disposition"] == f'attachment; filename="usage-{MONTH:%Y-%m}-gpr.csv"'
    assert head[:4] == ["day", "name", "of", "held_gpu_hours"]
    assert [line[:4] for line in lines] == [
        [str(MONTH), "'=cmd", "vision", "100.0000"],
        [str(MONTH + timedelta(days=1)), "'=cmd", "vision", "1.0000"],
    ]


@pytest.mark.sqlite_only  # its rows are made by an expression of SQLite
@pytest.mark.rotates
def test_a_csv_of_50000_rows_is_sent_piece_by_piece_and_never_whole_in_memory(world: AdminWorld) -> None:
    month = (MONTH - timedelta(days=40)).replace(day=1)  # a whole one
    UsageDay.objects.all().delete()
    box = factories.gpr(world.slice, world.people.owner, name="=box")
    copied = {field.attname: getattr(box, field.attname) for field in Gpr._meta.concrete_fields if not field.primary_key}
    Gpr.objects.bulk_create((Gpr(**copied) for _ in range(50_000 // 28)), batch_size=500)
    usage_day(box, month, held=1)
    columns = "slice_id, cluster_id, shape, workload, workload_name, held_gpu_ms, measured_gpu_ms, used_gpu_ms"
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE days (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM days WHERE n < 27) INSERT INTO gpr_usageday (gpr_id, day, "  # noqa: S608
            f"{columns}) SELECT gpr.id, date(usage.day, n || ' days'), usage.{columns.replace(', ', ', usage.')} "
            f"FROM gpr_usageday AS usage, gpr_gpr AS gpr, days WHERE gpr.name = '=box' AND (gpr.id <> usage.gpr_id OR n > 0)"
        )
    answer = client_of(world.people.owner).get(f"{OWN}usage.csv", {"by": "gpr", "month": f"{month:%Y-%m}"})

    lines, most_bytes = async_to_sync(read_as_a_server)(answer)

    assert lines == 1 + UsageDay.objects.count() > 50_000
    assert most_bytes < 4 * 2**20


async def read_as_a_server(answer: Any) -> tuple[int, int]:
    """Lines, and the most bytes that were in use at once."""
    lines = 0
    tracemalloc.start()
    async for piece in answer:
        lines += piece.count(b"\n")
        assert b",=box" not in piece  # a spreadsheet would run it
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return lines, most_bytes


@pytest.mark.parametrize("query", [{"month": "soon"}, {"month": "2026-13"}, {"month": "1066-10"}, {"by": "mood"}, {"cursor": "x"}])
def test_an_address_that_asks_for_nonsense_is_refused(query: dict[str, str], admin_world: AdminWorld, admin: Client) -> None:
    assert admin.get(ALL, query).status_code == 400


def test_a_page_costs_the_same_for_any_number_of_rows(world: AdminWorld, admin: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            text(admin.get(ALL, {"by": "gpr"}))
        return len(queries)

    few = cost()
    slices = [factories.make_slice(world.cluster, owner=world.people.owner) for _ in range(3)]
    for slice_ in slices:
        usage_day(factories.gpr(slice_, world.people.owner), date(MONTH.year, MONTH.month, 1), held=2)

    assert cost() == few <= QUERIES_MAX

"""`hotspots/` and `gpus/{ref}/metrics/`: what each may know of what a GPU does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr
from inventory.models import Gpu, Reservation, ReservedGpu
from journal.models import Event
from observability.models import LatestReading, Reading10m
from observability.telemetry.partitions import partitions_ensure
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.observability.telemetry.saying import gpus_of, reading, store

MINUTE = timedelta(minutes=1)


@pytest.fixture
def box(world: World) -> Gpr:
    return factories.active(world.slice, world.people.owner, nodes=1)


@pytest.fixture
def held(box: Gpr) -> Gpu:
    """The box holds this GPU."""
    return gpus_of(factories.held(box)[0].node)[0]


@pytest.fixture
def free(world: World, held: Gpu) -> Gpu:
    return Gpu.objects.filter(node__cluster=world.cluster).exclude(node=held.node).order_by("index")[0]


def told(caller: Caller, **query: Any) -> dict[str, Any]:
    """The temperature of each GPU that is listed, by its id, in the order of the list."""
    answer = caller.get("hotspots/", **query)
    assert answer.status_code == 200, answer.content
    return {row["id"]: row["reading"] and row["reading"]["temperature_c"] for row in answer.json()["results"]}


def begin_box_at(gpr: Gpr, at: datetime, *, until: datetime | None = None) -> None:
    """The box looks as if it had begun then, and had ended."""
    rows = Reservation.objects.filter(gpr=gpr)
    state = {"state": "RELEASED", "released_at": until, "phase": "RELEASED"} if until else {}
    ends = {"ends_at": until} if until else {}
    ReservedGpu.objects.filter(reservation__in=rows).update(starts_at=at, **ends, **({"state": "RELEASED"} if until else {}))
    rows.update(starts_at=at, **ends, **state)


@pytest.mark.both_databases
def test_the_hottest_comes_first_and_members_see_what_their_workspaces_hold(
    world: World, held: Gpu, free: Gpu, admin: Caller, owner: Caller, teammate: Caller, outsider: Caller
) -> None:
    now = db_now()
    store(world.cluster, reading(held, at=now, temperature_c=70), reading(free, at=now, temperature_c=80))

    assert list(told(admin).items())[:2] == [(str(free.pk), 80), (str(held.pk), 70)]
    for member in (owner, teammate):
        assert told(member)[str(held.pk)] == 70
        assert str(free.pk) not in told(member)
    assert told(outsider) == {}


def test_a_reading_from_before_the_box_is_anothers(world: World, held: Gpu, owner: Caller, admin: Caller) -> None:
    before = ReservedGpu.objects.get(gpu=held).starts_at - timedelta(seconds=5)
    store(world.cluster, reading(held, at=before, temperature_c=70), now=before)

    assert told(owner)[str(held.pk)] is None
    assert told(owner, view="hot") == {}
    assert told(admin)[str(held.pk)] == 70


def test_what_a_gpu_counts_from_before_the_box_is_for_administrators(world: World, held: Gpu, owner: Caller, admin: Caller) -> None:
    store(world.cluster, reading(held, at=db_now(), temperature_c=70, new_faults=0, xid=79, ecc_uncorrected=3, rows_failed=1))

    def counts(caller: Caller) -> list[Any]:
        (row,) = [row for row in caller.get("hotspots/").json()["results"] if row["id"] == str(held.pk)]
        return [row["reading"][name] for name in ("temperature_c", "xid", "ecc_uncorrected", "rows_failed")]

    assert counts(owner) == [70, None, None, None]
    assert told(owner, view="faulty") == {}
    assert counts(admin) == [70, 79, 3, 1]
    assert list(told(admin, view="faulty")) == [str(held.pk)]


def test_a_list_is_narrowed_by_views_and_read_by_cursor(world: World, held: Gpu, free: Gpu, admin: Caller) -> None:
    now = db_now()
    store(
        world.cluster,
        reading(held, at=now, temperature_c=40, utilization_percent=1),
        reading(free, at=now, temperature_c=90, utilization_percent=0, throttled_percent=20),
    )

    assert list(told(admin, view="hot")) == [str(free.pk)]
    assert list(told(admin, view="idle")) == [str(held.pk)]  # the other one is not held
    assert list(told(admin, view="faulty")) == [str(free.pk)]
    assert len(told(admin, view="stale")) == Gpu.objects.count() - 2
    assert next(iter(told(admin, node=held.node.name, cluster=world.cluster.name))) == str(held.pk)

    page, seen = admin.get("hotspots/", page_size=5).json(), []
    seen += page["results"]
    while page["next"]:
        page = admin.get(page["next"]).json()
        seen += page["results"]
    assert [row["id"] for row in seen] == list(told(admin, page_size=500))


def test_a_gpu_without_a_fresh_reading_is_marked_and_comes_last(world: World, held: Gpu, free: Gpu, admin: Caller) -> None:
    now = db_now()
    store(world.cluster, reading(held, at=now - 2 * MINUTE, temperature_c=95), reading(free, at=now, temperature_c=40))

    rows = {row["id"]: row for row in admin.get("hotspots/").json()["results"]}

    assert (rows[str(held.pk)]["is_stale"], rows[str(held.pk)]["reading"]["temperature_c"]) == (True, 95)
    assert next(iter(rows)) == str(free.pk)


def test_a_list_costs_the_same_queries_for_any_number_of_gpus(world: World, held: Gpu, admin: Caller, owner: Caller) -> None:
    for caller in (admin, owner):
        told(caller)  # the first call stores that the token was used
        counts = []
        for size in (1, 16):
            with CaptureQueriesContext(connection) as queries:
                told(caller, page_size=size)
            counts.append(len(queries))
        assert counts[0] == counts[1] <= 6


# -- the course --------------------------------------------------------------------------------------------------------


def course(caller: Caller, gpu: Gpu, **query: Any) -> Any:
    asked = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in query.items()}
    answer = caller.get(f"gpus/{gpu.uuid}/metrics/", **asked)
    assert answer.status_code == 200, answer.content
    return answer.json()


@pytest.mark.both_databases
def test_members_see_the_course_of_a_gpu_for_the_time_of_their_box_alone(
    world: World, box: Gpr, held: Gpu, owner: Caller, outsider: Caller, admin: Caller
) -> None:
    """Before it, after it and while another's box holds it they see nothing."""
    now = db_now().replace(microsecond=0)
    for minutes in range(30, 0, -1):
        at = now - minutes * MINUTE
        store(world.cluster, reading(held, at=at, temperature_c=minutes), now=at)
    begin_box_at(box, now - 20 * MINUTE, until=now - 10 * MINUTE)

    assert [point["temperature_c"] for point in course(owner, held)["points"]] == list(range(20, 9, -1))
    assert [span["gpr"] for span in course(owner, held)["spans"]] == [box.name]
    assert course(outsider, held)["points"] == course(outsider, held)["spans"] == []
    assert [point["temperature_c"] for point in course(admin, held)["points"]] == list(range(30, 0, -1))


def test_a_coarse_point_that_began_before_the_box_is_not_its_members(
    world: World, box: Gpr, held: Gpu, owner: Caller, admin: Caller
) -> None:
    now = db_now().replace(microsecond=0)
    store(world.cluster, reading(held, at=now, temperature_c=50), now=now)
    series, begin = LatestReading.objects.get(gpu=held).pk, now - timedelta(days=10)
    times = [begin + n * 10 * MINUTE for n in range(4)]
    partitions_ensure(Reading10m, times)
    Reading10m.objects.bulk_create(Reading10m(series_id=series, at=at, temperature_c=n) for n, at in enumerate(times))
    begin_box_at(box, times[1] - MINUTE, until=times[3] + MINUTE)

    ten_days = {"since_at": begin, "until_at": now - timedelta(days=1)}
    assert [point["temperature_c"] for point in course(owner, held, **ten_days)["points"]] == [1, 2]
    assert [point["temperature_c"] for point in course(admin, held, **ten_days)["points"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("back", "step_s", "given"),
    [
        (timedelta(hours=1), None, 15),
        (timedelta(hours=12), None, 60),
        (timedelta(hours=1), "600", 600),
        (timedelta(days=3), "15", 600),  # too many points
        (timedelta(days=60), None, 600),
    ],
)
def test_the_step_follows_from_the_time_that_is_asked_for(
    back: timedelta, step_s: str | None, given: int, held: Gpu, admin: Caller
) -> None:
    asked = {"since_at": db_now() - back, **({"step_s": step_s} if step_s else {})}

    assert course(admin, held, **asked)["step_s"] == given


def test_what_cannot_be_asked_for_is_refused(held: Gpu, admin: Caller) -> None:
    times = [{"since_at": "2030-01-01T00:00:00Z"}, {"since_at": "2020-01-01T00:00:00Z"}, {"until_at": "0001-01-01T00:30:00Z"}]
    for query in (*times, {"step_s": "7"}, {"since_at": "soon"}):
        assert faults(admin.get(f"gpus/{held.uuid}/metrics/", **query))
    assert_problem(admin.get("gpus/GPU-none/metrics/"), 404, "not_found")


def test_the_prometheus_of_a_cluster_is_set_and_its_secret_never_told(admin: Caller, world: World) -> None:
    (told,) = [row for row in admin.get("prometheus/").json()["results"] if row["name"] == "aurora"]
    assert (told["url"], told["auth"], told["beyond_s"]) == ("", "none", 7 * 86_400)

    change = {"url": "https://prometheus.example:9090", "auth": "bearer", "secret": "hidden-token", "matchers": 'cluster="aurora"'}
    changed = admin.patch("prometheus/aurora/", change)
    assert changed.status_code == 200
    assert changed.json() == {**told, **{name: value for name, value in change.items() if name != "secret"}}
    assert changed.json() == admin.get("prometheus/aurora/").json()
    assert "hidden-token" not in changed.content.decode() + str(list(Event.objects.values_list("message", "data")))
    assert_problem(admin.patch("prometheus/aurora/", {"url": "https://other.example"}), 400, "invalid_input")
    assert admin.patch("prometheus/aurora/", {"url": ""}).json()["url"] == ""


def test_a_prometheus_inside_the_network_is_refused_and_without_one_none_is_asked(admin: Caller, world: World) -> None:
    refused = admin.patch("prometheus/aurora/", {"url": "http://10.0.0.1:9090"})
    assert_problem(refused, 400, "invalid_input")
    assert "inside this network" in refused.content.decode()
    assert admin.post("prometheus/aurora/test/").json() == {"is_ok": False, "text": "aurora has no Prometheus."}

"""What is stored of one request makes no sense: the others are planned and start, and it says so itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.db.migrations import RunPython
from django.db.models import JSONField, Value
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import egs.readable
from accounts.models import Scope
from egs.errors import Conflict
from egs.readable import SPOILED, readable_first
from egs.rest.pagination import CursorPage, page_behind
from gpr.allocator import tick
from gpr.explaining import explain_gprs, sentences_for_slices
from gpr.fairness import usage_load
from gpr.models import (
    Claim,
    Eviction,
    EvictionVictim,
    Gpr,
    GprState,
    ProjectUsage,
    Promise,
    PromiseMove,
    Shadow,
    VictimKind,
    VictimOutcome,
    Witness,
)
from gpr.planner.plan import Cause, Reason
from gpr.rows import arrivals_since, asks_waiting
from gpr.selectors import QUEUE_ORDER
from gpr.services.moving import MoveTo, gpr_move
from gpr.services.requests import gpr_edit, spec_of
from gpr.witness import replan
from inventory.agent_hub import HubAtFault
from inventory.models import Node, Reservation
from inventory.services import sync
from journal.models import Event
from tests import factories
from tests.builders import HOUR, make_slice
from tests.inventory.agent import seen, step
from tests.lifecycle.stage import ENTRY, Stage, fresh
from tests.pages.admin_world import signed_in
from worker_agent.protocol import Phase

pytestmark = pytest.mark.django_db

S = GprState
Spoil = Callable[[Gpr], object]
# No calendar has it: PostgreSQL stores one such time, SQLite any text.
NO_TIME = {"postgresql": "infinity", "sqlite": "2026-99-99 00:00:00"}
BEFORE_ALL = {"postgresql": "-infinity", "sqlite": "0000-00-00 00:00:00"}


def gpr(**fields: Any) -> Spoil:
    return lambda spoiled: Gpr.objects.filter(pk=spoiled.pk).update(**fields)


def slot(**fields: Any) -> Spoil:
    return lambda spoiled: Promise.objects.filter(gpr=spoiled).update(**fields)


def shadow(**fields: Any) -> Spoil:
    def spoil(spoiled: Gpr) -> None:
        ends_at = timezone.now() + timedelta(days=2)
        good: dict[str, Any] = {"gpus_per_node": 1}
        for queue in ("patient", "strict"):
            good |= {queue: {"pool": "p", "nodes": []}, f"{queue}_starts_at": ends_at - HOUR, f"{queue}_ends_at": ends_at}
        Shadow.objects.filter(gpr=spoiled).update(**{**good, **fields})

    return spoil


def no_time(table: str, column: str, key: str, *, at: Mapping[str, str] = NO_TIME) -> Spoil:
    def spoil(spoiled: Gpr) -> None:
        id_ = spoiled.pk if connection.vendor == "postgresql" else spoiled.pk.hex
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET {column} = %s WHERE {key} = %s", [at[connection.vendor], id_])  # noqa: S608

    return spoil


BLOCKER = {"id": "nobody", "is_running": True, "until_s": 5, "is_overdue": False}
WAITS = {"reason": "waits_for_gpus", "ahead_count": 0, "most_node_count": 0, "most_gpus_per_node": 0}
LEFT_OUT = {
    "shapes that are none": gpr(allowed_shapes=5),
    "shapes by name": gpr(allowed_shapes={"H100-80GB": 1}),
    "shapes of shapes": gpr(allowed_shapes=[["H100-80GB"]]),
}
WITHOUT_SLOT = {
    "a number for nodes": slot(slot_nodes=5),
    "nodes by name": slot(slot_nodes={"a": 1}),
    "a node that is none": slot(slot_nodes=["no node"]),
    "a node that is null": slot(slot_nodes=[None]),
    "nodes of nodes": slot(slot_nodes=[["a"]]),
    "nowhere": slot(slot_nodes=["no node"], slot_pool="nowhere"),
}
FORGOTTEN = {
    "a shadow that is empty": shadow(patient={}),
    "a shadow without a pool": shadow(patient={"pool": 5, "nodes": []}),
    "a shadow on no nodes": shadow(strict={"pool": "p", "nodes": 7}),
    "a shadow without a start": shadow(strict_starts_at=None),
    "an explanation of another version": gpr(explanation={"reason": "of old", "blockers": []}),
    "an explanation that is a list": gpr(explanation=["waits"]),
    "an explanation that is a text": gpr(explanation="waits"),
    "an explanation that names nobody": gpr(explanation=WAITS | {"blockers": [BLOCKER]}),
    "an explanation without end": gpr(explanation=WAITS | {"blockers": [BLOCKER | {"id": "9" * 32, "until_s": 10**30}]}),
}
NO_TIMES = {
    "no earliest start": no_time("gpr_gpr", "earliest_start_at", "id"),
    "no age": no_time("gpr_gpr", "turn_at", "id"),
    "no promised time": no_time("gpr_promise", "promised_start_at", "gpr_id"),
    "no time of its slot": no_time("gpr_promise", "slot_start_at", "gpr_id"),
    "no planned time": no_time("gpr_gpr", "planned_start_at", "id"),
    "no time of its shadow": no_time("gpr_shadow", "made_at", "gpr_id"),
}

# Lists read more than plans do.
LISTED_TIMES = {name: spoil for name, spoil in NO_TIMES.items() if "shadow" not in name} | {
    "no birth": no_time("gpr_gpr", "created_at", "id"),
    "no change": no_time("gpr_gpr", "state_changed_at", "id"),
    "no time of its promise": no_time("gpr_promise", "made_at", "gpr_id"),
    "in the queue since ever": no_time("gpr_gpr", "queued_at", "id", at=BEFORE_ALL),
    "planned for long ago": no_time("gpr_gpr", "planned_start_at", "id", at=BEFORE_ALL),
}


class Queue:
    """Some that wait for their hour, each with a slot, and are spoiled; and then two others, of whom one starts and one waits for that."""

    def __init__(self, spoils: Mapping[str, Spoil]) -> None:
        self.stage = stage = Stage(nodes=1)
        later = stage.now + 2 * HOUR
        self.spoiled = {name: self.file(name, earliest_start_at=later, duration_s=60) for name in spoils}
        stage.tick()
        for name, spoil in spoils.items():
            spoil(self.spoiled[name])
        self.starts, self.waits = self.file("starts", duration_s=600), self.file("waits", duration_s=600)
        self.report = stage.tick()

    def file(self, name: str, **asked: Any) -> Gpr:
        return self.stage.submit(make_slice(self.stage.cluster, owner=self.stage.owner), name=name, **asked)

    def told(self) -> dict[str, tuple[str, str, UUID | None]]:
        """By name, what administrators are told, in one event each."""
        names = {gpr.pk: name for name, gpr in self.spoiled.items()}
        events = Event.objects.filter(kind="gpr.spoiled")
        found = {names[event.gpr_id]: (event.severity, event.reason, event.slice_id) for event in events if event.gpr_id is not None}
        assert len(found) == len(events)
        return found

    def sentences(self) -> set[str]:
        told = explain_gprs([fresh(gpr) for gpr in self.spoiled.values()], actor=self.stage.owner, now=self.stage.now)
        return {each.sentence for each in told.values()}


@pytest.mark.parametrize("spoils", [LEFT_OUT, WITHOUT_SLOT, FORGOTTEN, NO_TIMES], ids=["requests", "slots", "what is told", "times"])
def test_whatever_is_stored_of_some_requests_others_are_filed_promised_and_started(spoils: Mapping[str, Spoil]) -> None:
    queue = Queue(spoils)

    assert (fresh(queue.starts).state, fresh(queue.waits).state) == (S.PROVISIONING, S.QUEUED)
    assert queue.report.skipped == {}
    assert Promise.objects.filter(gpr=queue.waits).exists()
    assert not Event.objects.filter(kind="planner.fault").exists()


def test_a_request_that_cannot_be_read_says_so_and_is_planned_again_once_it_is_mended() -> None:
    queue = Queue(LEFT_OUT)
    promises = Promise.objects.filter(gpr__in=queue.spoiled.values()).order_by("gpr")
    promised = list(promises.values_list("promised_start_at", flat=True))
    queue.stage.tick()

    assert queue.told() == dict.fromkeys(LEFT_OUT, ("error", "request", None))
    assert queue.sentences() == {"Something that is stored of it cannot be read, by a fault of EGS. Administrators have been told."}

    for one in queue.spoiled.values():
        gpr(allowed_shapes=None)(one)
    queue.stage.tick()

    assert "It waits for the start time that was asked for." in queue.sentences()
    assert not any("cannot be read" in sentence for sentence in queue.sentences())
    assert list(promises.values_list("promised_start_at", flat=True)) == promised


def test_an_explanation_of_another_version_is_no_fault_that_anybody_was_told_of() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=600)
    one = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="waits")
    stage.tick()
    for what in ("of another version", "that is a list", "that is a text", "that names nobody"):
        FORGOTTEN[f"an explanation {what}"](one)
        assert explain_gprs([fresh(one)], actor=stage.owner, now=stage.now) == {}, what
        assert sentences_for_slices([fresh(one)]) == {}, what
    stage.tick()

    (told,) = explain_gprs([fresh(one)], actor=stage.owner, now=stage.now).values()
    assert told.reason == Reason.WAITS_FOR_GPUS


def test_a_request_whose_slot_cannot_be_read_gets_another_and_keeps_its_promise() -> None:
    queue = Queue(WITHOUT_SLOT)
    (node,) = queue.stage.cluster.nodes.all()
    queue.stage.tick()

    assert queue.told() == dict.fromkeys(WITHOUT_SLOT, ("error", "slot", None))
    for promise in Promise.objects.filter(gpr__in=queue.spoiled.values()):
        assert promise.slot_nodes == [str(node.pk)]
        assert promise.slot_start_at <= promise.promised_start_at == promise.first_promised_start_at


def test_a_row_that_cannot_be_read_is_found_among_many_in_a_few_reads() -> None:
    stage = Stage(nodes=1)
    one = stage.submit()
    given = {"slice": stage.slice, "owner": stage.owner, "shape": one.shape, "state": S.QUEUED, "state_changed_at": stage.now}
    given |= {"nodes": 1, "duration_s": 60, "remaining_s": 60, "created_at": stage.now}
    made = [Gpr(name=f"g{n}", turn_at=stage.now + timedelta(seconds=n), **given) for n in range(1, 201)]
    Gpr.objects.bulk_create(made)
    for spoiled in (made[70], made[180]):
        no_time("gpr_gpr", "earliest_start_at", "id")(spoiled)

    with CaptureQueriesContext(connection) as queries:
        asks, lost = asks_waiting()

    assert lost == [made[70].pk, made[180].pk]
    assert [ask.pk for ask in asks] == [gpr.pk for gpr in (one, *made) if gpr.pk not in lost]
    assert len(queries) < 40


def test_who_edits_a_request_whose_promise_cannot_be_read_is_told_so_and_nothing_is_changed() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=7200)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="waits", duration_s=7200)
    no_time("gpr_promise", "promised_start_at", "gpr_id")(waits)

    with pytest.raises(Conflict, match="cannot be read, by a fault of EGS"):
        gpr_edit(gpr=fresh(waits), actor=stage.owner, spec=spec_of(fresh(waits), duration_s=600), now=stage.now)

    assert fresh(waits).duration_s == 7200


def test_an_edit_mends_a_request_whose_shapes_cannot_be_read_and_its_promise_stands() -> None:
    """It gets the policy of its workspace of now."""
    stage = Stage(nodes=1)
    stage.active(duration_s=7200)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="waits", duration_s=7200)
    promised_at = Promise.objects.get(gpr=waits).promised_start_at
    gpr(allowed_shapes=5)(waits)
    stage.tick()

    edited = gpr_edit(gpr=fresh(waits), actor=stage.owner, spec=spec_of(fresh(waits), duration_s=600), now=stage.now)

    assert (edited.explanation["reason"], Promise.objects.get(gpr=waits).promised_start_at) == (Reason.WAITS_FOR_GPUS, promised_at)
    assert PromiseMove.objects.count() == 0


def test_where_that_is_too_late_its_owner_is_told_that_it_was_nobodys_edit() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=7200)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="waits", duration_s=7200)
    stage.tick()
    Promise.objects.filter(gpr=waits).update(slot_nodes=["no node"], promised_start_at=stage.now + timedelta(minutes=1))
    stage.tick()

    assert PromiseMove.objects.get(gpr=waits).cause == Cause.FAULT


def test_one_that_came_at_no_time_leaves_the_others_counted_and_is_forgotten() -> None:
    stage = Stage(nodes=1)
    one, other = (stage.submit(make_slice(stage.cluster, owner=stage.owner), name=name, duration_s=600) for name in ("one", "other"))
    no_time("gpr_shadow", "made_at", "gpr_id")(one)

    assert [count for *_, count in arrivals_since(stage.now - HOUR)] == [1]

    stage.after(2 * 3600)
    stage.submit(make_slice(stage.cluster, owner=stage.owner), name="later")
    assert set(Shadow.objects.filter(gpr__in=[one, other]).values_list("gpr", flat=True)) == {other.pk}


def test_pages_and_lists_show_them_among_the_others() -> None:
    people, cluster = factories.make_people(), factories.cluster(nodes=1)
    spoils, later = LEFT_OUT | WITHOUT_SLOT | FORGOTTEN, timezone.now() + 2 * HOUR
    shared = factories.make_slice(cluster, owner=people.owner)
    spoiled = [factories.gpr(shared, people.owner, name=f"spoiled-{n}", earliest_start_at=later) for n in range(len(spoils))]
    for one, spoil in zip(spoiled, spoils.values(), strict=True):
        spoil(one)

    for user, lists, details in ((people.owner, OWNER_LISTS, OWNER_DETAILS), (people.admin, ADMIN_LISTS, ADMIN_DETAILS)):
        browser, bearer = signed_in(user), {"Authorization": f"Bearer {factories.token(user, Scope.READ)}"}
        for url in (*(url.format(shared.name) for url in lists), *(url.format(one.pk) for url in details for one in spoiled)):
            answer = browser.get(url, headers=bearer if url.startswith("/api") else {})
            assert answer.status_code == 200, url


@pytest.mark.parametrize("name", LISTED_TIMES)
def test_a_row_with_no_time_is_left_out_of_pages_and_lists_and_they_say_so(name: str) -> None:
    people, cluster = factories.make_people(), factories.cluster(nodes=1)
    shared, later = factories.make_slice(cluster, owner=people.owner), timezone.now() + 2 * HOUR
    names = ("first", "spoiled", "last")
    first, spoiled, last = (factories.gpr(shared, people.owner, name=name, earliest_start_at=later) for name in names)
    replan(now=timezone.now())
    LISTED_TIMES[name](spoiled)

    for user, scope, lists in ((people.owner, Scope.READ, OWNER_LISTS), (people.admin, Scope.ADMIN, ADMIN_LISTS)):
        browser, bearer = signed_in(user), {"Authorization": f"Bearer {factories.token(user, scope)}"}
        for url in (url.format(shared.name) for url in lists):
            answer = browser.get(url, headers=bearer if url.startswith("/api") else {})
            assert answer.status_code == 200, url
            if url in {f"/workspaces/{shared.name}/", "/admin/queue/"}:
                assert "1 left out" in answer.content.decode(), url
            if url.startswith("/api"):
                assert {row["id"] for row in answer.json()["results"]} >= {str(first.pk), str(last.pk)}, url


@pytest.mark.parametrize("name", LISTED_TIMES)
@pytest.mark.parametrize(("moved", "to", "order"), [("b", "up", "bac"), ("a", "down", "bac"), ("c", "first", "cab"), ("a", "last", "bca")])
def test_others_are_moved_beside_a_row_with_no_time(name: str, moved: str, to: str, order: str) -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=600)
    of: dict[str, Gpr] = {}
    for letter in "abxc":
        stage.after(1)
        of[letter] = stage.submit(make_slice(stage.cluster, owner=stage.owner), name=letter, duration_s=600)
    LISTED_TIMES[name](of["x"])

    gpr_move(gpr=of[moved], to=MoveTo(to), actor=factories.make_people().admin, now=stage.now)

    waiting = Gpr.objects.filter(state=S.QUEUED).exclude(pk=of["x"].pk)
    assert "".join(waiting.order_by(*QUEUE_ORDER).values_list("name", flat=True)) == order


def test_whoever_opens_a_row_with_no_time_reads_that_it_cannot_be_read() -> None:
    people, cluster = factories.make_people(), factories.cluster(nodes=1)
    one = factories.gpr(factories.make_slice(cluster, owner=people.owner), people.owner)
    no_time("gpr_gpr", "state_changed_at", "id")(one)
    browser, bearer = signed_in(people.owner), {"Authorization": f"Bearer {factories.token(people.owner, Scope.READ)}"}

    for url in (url.format(one.pk) for url in OWNER_DETAILS):
        answer = browser.get(url, headers=bearer if url.startswith("/api") else {})
        assert (answer.status_code, "cannot be read" in answer.content.decode()) == (409, True), url


@pytest.mark.parametrize("spoiled", ["01", "04", "13", "1234", "2"])
def test_page_by_page_all_others_come_once(spoiled: str) -> None:
    stage = Stage(nodes=1)
    gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=str(number), duration_s=600 + number) for number in range(5)]
    for gpr in gprs:
        if gpr.name in spoiled:
            no_time("gpr_gpr", "state_changed_at", "id")(gpr)

    there = [queue_page(None)]
    while cursor := there[-1].next:
        there.append(queue_page(cursor))
    back = [there[-1]]
    while cursor := back[-1].previous:
        back.append(queue_page(cursor))

    assert [gpr.name for page in there for gpr in page.rows] == [name for name in "01234" if name not in spoiled]
    assert [page.rows for page in reversed(back)] == [page.rows for page in there]
    assert sum(page.lost_count for page in there) == len(spoiled)
    assert [page.lost_count for page in reversed(back)] == [page.lost_count for page in there]


def queue_page(cursor: str | None) -> CursorPage:
    return page_behind(Gpr.objects.filter(state=S.QUEUED), QUEUE_ORDER, cursor=cursor, size=2)


def test_where_nothing_can_be_read_it_is_no_fault_of_rows_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=1)
    for number in range(3):
        no_time("gpr_gpr", "state_changed_at", "id")(stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"g{number}"))
    assert len(readable_first(Gpr.objects.order_by("pk"), 2)[1]) == 3
    monkeypatch.setattr(egs.readable, "LOST_MAX", 2)

    with pytest.raises(SPOILED):
        readable_first(Gpr.objects.order_by("pk"), 2)


OWNER_LISTS = ("/", "/workspaces/{}/", "/api/v1/gprs/", "/api/v1/queue/")
OWNER_DETAILS = ("/gprs/{}/", "/api/v1/gprs/{}/")
ADMIN_LISTS = ("/admin/queue/", "/admin/schedule/", "/api/v1/gprs/", "/api/v1/queue/")
ADMIN_DETAILS = ("/admin/queue/{}/",)


def test_a_box_whose_end_cannot_be_read_still_holds_its_nodes() -> None:
    stage = Stage(nodes=1)
    runs = stage.active(duration_s=600)
    no_time("inventory_reservation", "ends_at", "gpr_id")(runs)
    waits = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="waits")
    tick(now=stage.now)

    assert fresh(waits).state == S.QUEUED
    assert Reservation.objects.filter(gpr=waits).count() == 0


@pytest.mark.parametrize("column", ["active_at", "ends_at", "provisioning_at"])
@pytest.mark.parametrize("at", [NO_TIME, BEFORE_ALL], ids=["after all", "before all"])
def test_a_box_that_cannot_be_read_stops_no_other_at_its_end_or_start(column: str, at: Mapping[str, str]) -> None:
    stage = Stage(nodes=3)
    spoiled = stage.active(duration_s=600)
    ends = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="ends", duration_s=600)
    stage.tick()
    stage.after(5)
    stage.say(ends, *ENTRY)
    stage.tick()
    starts = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="starts")
    no_time("gpr_gpr", column, "id", at=at)(spoiled)
    stage.after(601)
    stage.tick()

    assert (fresh(ends).state, fresh(starts).state) == (S.EXITING, S.PROVISIONING)
    told = Event.objects.filter(kind="gpr.spoiled", gpr_id=spoiled.pk)
    assert [(event.severity, event.reason, event.slice_id) for event in told] == [("error", "box", None)]
    stage.tick()
    assert told.count() == 1


def test_use_that_is_no_number_is_refused_by_the_database() -> None:
    stage = Stage(nodes=1)
    ProjectUsage.objects.create(project=stage.slice.project, gpu_s=5.0, summed_at=stage.now)

    for value in (-1.0, float("inf")):
        with pytest.raises(IntegrityError), transaction.atomic():
            ProjectUsage.objects.update(gpu_s=value)

    assert usage_load(now=stage.now) == {str(stage.slice.project_id): 5.0}


@pytest.fixture
def unchecked() -> Iterator[None]:
    """A database of an earlier version, which took any use."""
    off = {"postgresql": "ALTER TABLE gpr_projectusage DROP CONSTRAINT usage_is_a_number", "sqlite": "PRAGMA ignore_check_constraints = ON"}
    on = {"postgresql": "SELECT 1", "sqlite": "PRAGMA ignore_check_constraints = OFF"}  # the other one comes back with the transaction
    with connection.cursor() as cursor:
        cursor.execute(off[connection.vendor])
    yield
    with connection.cursor() as cursor:
        cursor.execute(on[connection.vendor])


@pytest.mark.usefixtures("unchecked")
def test_use_that_is_no_number_is_none_after_an_upgrade() -> None:
    """SQLite stores nothing for NaN, and refuses that."""
    stage, other = Stage(nodes=1), factories.make_people()
    good = ProjectUsage.objects.create(project=make_slice(stage.cluster, owner=other.owner).project, gpu_s=5.0, summed_at=stage.now)
    bad = ProjectUsage.objects.create(project=stage.slice.project, gpu_s=0.0, summed_at=stage.now)
    operations = import_module("gpr.migrations.0018_checked_choices").Migration.operations
    (mend,) = (operation for operation in operations if isinstance(operation, RunPython))
    clear: Any = mend.code
    assert operations.index(mend) < next(
        n for n, each in enumerate(operations) if each.deconstruct()[2].get("model_name") == "projectusage"
    )

    for value in (float("inf"), -1.0, *([float("nan")] if connection.vendor == "postgresql" else [])):
        ProjectUsage.objects.filter(pk=bad.pk).update(gpu_s=value)
        clear(apps, SimpleNamespace(connection=connection))
        assert dict(ProjectUsage.objects.values_list("pk", "gpu_s")) == {good.pk: 5.0, bad.pk: 0.0}


@pytest.mark.parametrize("field", ["duration_s", "remaining_s"])
def test_more_time_than_there_is_is_refused_by_the_database(field: str) -> None:
    stage = Stage(nodes=1)
    one = stage.submit()

    with pytest.raises(IntegrityError), transaction.atomic():
        gpr(**{field: 2**62})(one)
    gpr(**{field: 366 * 86_400})(one)


def test_sums_of_promises_that_are_no_numbers_are_forgotten() -> None:
    stage = Stage(nodes=1)
    stage.tick()
    Witness.objects.update(promised_sum_s=float("inf"), patient_sum_s=float("inf"), ran_sum_s=float("inf"), booked_sum_s=float("inf"))
    gprs = [stage.submit(make_slice(stage.cluster, owner=stage.owner), name=f"g{number}") for number in range(3)]
    stage.tick()

    assert [fresh(gpr).state for gpr in gprs] == [S.PROVISIONING, S.QUEUED, S.QUEUED]
    assert Promise.objects.filter(gpr__state=S.QUEUED).count() == 2


def two_boxes(stage: Stage) -> tuple[Gpr, Gpr]:
    """Both at work, for hours."""
    one = stage.active(duration_s=7200)
    other = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="runs", duration_s=7200)
    stage.tick()
    stage.after(5)
    stage.say(other, *ENTRY)
    stage.tick()
    return one, other


def test_a_box_that_cannot_be_read_and_whose_node_fails_stops_no_other() -> None:
    stage = Stage(nodes=4)
    spoiled, runs = two_boxes(stage)
    held = Reservation.objects.filter(gpr__in=[spoiled, runs])
    Node.objects.filter(reservations__in=held).update(broken_at=stage.now - HOUR)
    no_time("gpr_gpr", "provisioning_at", "id")(spoiled)
    starts = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="starts")
    stage.after(5)
    stage.tick()

    assert fresh(starts).state == S.PROVISIONING
    assert Reservation.objects.filter(gpr=runs, replaces__isnull=False).exists()
    told = Event.objects.filter(kind="gpr.spoiled")
    assert [(event.gpr_id, event.reason) for event in told] == [(spoiled.pk, "box")]


def test_a_notice_to_a_box_that_cannot_be_read_stops_no_other() -> None:
    stage = Stage(nodes=2)
    spoiled, runs = two_boxes(stage)
    gone = factories.gpr(stage.slice, stage.owner, name="gone")
    gpr(state=S.CANCELED)(gone)
    times = {"made_at": stage.now, "start_at": stage.now, "instead_at": stage.now}
    eviction, ends_at = Eviction.objects.create(gpr=gone, **times), stage.now + HOUR
    for one in (spoiled, runs):
        given = {"kind": VictimKind.values[0], "ends_at": ends_at, "lost_gpu_s": 0, "outcome": VictimOutcome.NOTICED}
        EvictionVictim.objects.create(eviction=eviction, gpr=one, **given)
    no_time("gpr_gpr", "provisioning_at", "id")(spoiled)
    stage.after(1)
    stage.tick()

    outcomes = dict(EvictionVictim.objects.values_list("gpr", "outcome"))
    assert outcomes == {spoiled.pk: VictimOutcome.NOTICED, runs.pk: VictimOutcome.SPARED}


def claim_of(filed: Gpr, stage: Stage, **fields: Any) -> Claim:
    """An object of a namespace that no workspace has."""
    given = {"namespace": "n", "name": filed.name, "requester": "r", "generation": 1, "asked": {}}
    return Claim.objects.create(cluster=stage.cluster, uid=filed.name, gpr=filed, **given, **fields)


def test_an_object_of_nobodys_namespace_that_cannot_be_read_stops_no_other() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=600)
    spoiled, other = (stage.submit(make_slice(stage.cluster, owner=stage.owner), name=name) for name in ("spoiled", "other"))
    for filed in (spoiled, other):
        claim_of(filed, stage)
    no_time("gpr_gpr", "state_changed_at", "id")(spoiled)
    tick(now=stage.now + timedelta(seconds=1))

    assert dict(Gpr.objects.filter(pk__in=[spoiled.pk, other.pk]).values_list("name", "state")) == {
        "spoiled": S.QUEUED,
        "other": S.CANCELED,
    }


@pytest.mark.parametrize("column", ["active_at", "exit_began_at", "failing_at", "enter_by_at"])
def test_a_reservation_that_cannot_be_read_cuts_no_cluster_off(column: str) -> None:
    stage = Stage(nodes=2)
    spoiled = stage.active(duration_s=600)
    other = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="other")
    stage.tick()
    (its, row) = (Reservation.objects.get(gpr=gpr) for gpr in (spoiled, other))
    no_time("inventory_reservation", column, "gpr_id")(spoiled)
    stage.after(5)
    reply = stage.agent.sync(seen(its, Phase.EXITING), seen(row, Phase.ACTIVE, active_s=stage.now.timestamp()), at=stage.now)
    first = stage.agent.seq + 1
    stage.agent.events(step(its, first), step(row, first + 1), at=stage.now)

    assert {told.id for told in reply.assignments or ()} >= {str(row.pk)} | ({str(its.pk)} if column != "enter_by_at" else set())
    assert Reservation.objects.values_list("phase", flat=True).get(pk=row.pk) == Phase.ACTIVE
    stage.tick()
    assert fresh(other).state == S.ACTIVE


@pytest.mark.parametrize("column", ["namespaces", "entry_steps", "exit_steps"])
@pytest.mark.parametrize("stored", [5, None, "text", {}, [5]], ids=str)
def test_a_reservation_whose_terms_are_no_lists_of_names_is_left_out_of_what_its_agent_is_told(column: str, stored: Any) -> None:
    stage = Stage(nodes=2)
    spoiled = stage.active(duration_s=600)
    other = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="other")
    stage.tick()
    Reservation.objects.filter(gpr=spoiled).update(**{column: Value(stored, JSONField())})

    reply = stage.agent.sync(at=stage.now)

    assert [told.id for told in reply.assignments or ()] == [str(row.pk) for row in stage.held(other)]


def test_an_object_whose_request_cannot_be_read_keeps_no_other_from_its_cluster() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=600)
    spoiled, other = (stage.submit(make_slice(stage.cluster, owner=stage.owner), name=name) for name in ("spoiled", "other"))
    for filed in (spoiled, other):
        claim_of(filed, stage, is_told=True)
    no_time("gpr_gpr", "state_changed_at", "id")(spoiled)

    assert [state.id for state in stage.agent.sync(at=stage.now).claims or ()] == ["other"]


def test_what_a_hub_cannot_read_is_no_fault_of_what_its_agent_says(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(nodes=1)

    def spoiled(*_: object, **__: object) -> None:
        raise ValueError("year 10000 is out of range")

    monkeypatch.setattr(sync, "claims", SimpleNamespace(told=spoiled))
    with pytest.raises(HubAtFault):
        stage.agent.try_sync(at=stage.now)


def test_a_box_that_cannot_be_read_hides_no_node_on_which_it_stands() -> None:
    stage = Stage(nodes=3)
    spoiled = stage.active(name="spoiled", duration_s=7200)
    node_id = Reservation.objects.values_list("node", flat=True).get(gpr=spoiled)
    no_time("gpr_gpr", "provisioning_at", "id")(spoiled)
    admin = factories.make_people().admin
    browser, bearer = signed_in(admin), {"Authorization": f"Bearer {factories.token(admin, Scope.ADMIN)}"}

    for url, count in (("/api/v1/nodes/", 3), ("/api/v1/gpus/", 12), ("/api/v1/schedule/", 1)):
        found = browser.get(url, headers=bearer).json()["results"]
        assert (len(found), "spoiled" in str(found)) == (count, True), url
    for url in ("/admin/inventory/", f"/admin/inventory/{node_id}/", f"/admin/inventory/{node_id}/force-release/"):
        answer = browser.get(url)
        assert (answer.status_code, "spoiled" in answer.content.decode(), "left out" in answer.content.decode()) == (200, True, False), url


@pytest.mark.parametrize("table", ["gpr_gpr", "inventory_reservation"])
@pytest.mark.parametrize("as_", ["", "table"])
def test_a_box_that_cannot_be_read_does_not_look_free_in_the_schedule(table: str, as_: str) -> None:
    stage = Stage(nodes=1)
    spoiled = stage.active(name="spoiled", duration_s=7200)
    Reservation.objects.filter(gpr=spoiled).update(starts_at=timezone.now() - HOUR, ends_at=timezone.now() + HOUR)
    no_time(table, "active_at", "id" if table == "gpr_gpr" else "gpr_id")(spoiled)

    shown = signed_in(factories.make_people().admin).get("/admin/schedule/", {"as": as_}).content.decode()

    assert "spoiled" in shown
    assert ("1 left out" in shown) == (table != "gpr_gpr")


def test_the_schedule_counts_the_plans_that_it_leaves_out() -> None:
    stage = Stage(nodes=1)
    stage.active(duration_s=7200)
    spoiled = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="spoiled")
    stage.tick()
    Promise.objects.filter(gpr=spoiled).update(slot_start_at=timezone.now() + HOUR)
    no_time("gpr_gpr", "state_changed_at", "id")(spoiled)

    assert "1 left out" in signed_in(factories.make_people().admin).get("/admin/schedule/").content.decode()

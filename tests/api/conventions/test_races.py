"""Two requests at once, on a database that really lets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest
from django.db import connection, transaction

from core.errors import Conflict
from gpr.allocation.stored_plan import plan_lock
from gpr.models import Gpr, GprTemplate
from slices.closing.services import project_close, slice_close, slice_restore
from slices.models import Life, Project, Role, Slice
from slices.services import member_set
from tests import factories
from tests.api.conftest import Answer, Caller
from tests.builders import SHAPE
from tests.databases import lock_waiter_count, wait_until
from tests.factories import People

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

AT_ONCE = 4
ANSWER_MOST_S = 30.0


def at_once(call: Callable[[int], Answer]) -> list[Answer]:
    barrier = Barrier(AT_ONCE)

    def one(number: int) -> Answer:
        with closing(connection):
            barrier.wait()
            return call(number)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(AT_ONCE)))


@pytest.fixture
def people() -> People:
    return factories.make_people()


def test_of_many_with_one_key_one_makes_the_object_and_all_get_it(people: People) -> None:
    secret = factories.token(people.owner)
    factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner)
    ask = {"name": "train", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}

    answers = at_once(lambda number: Caller(secret).post("gprs/", ask, key="k"))

    assert [answer.status_code for answer in answers] == [201] * AT_ONCE
    assert {answer.json()["id"] for answer in answers} == {str(Gpr.objects.get().pk)}
    assert sum("Idempotency-Replayed" in answer for answer in answers) == AT_ONCE - 1


def test_of_many_who_file_at_once_no_more_are_queued_than_the_workspace_may_have(people: People) -> None:
    """Each in a transaction of its own, as in processes of their own: those of one process would share one."""
    secrets = [factories.token(people.owner) for _ in range(AT_ONCE)]  # whoever uses one writes it down there
    slice_ = factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner)
    Slice.objects.filter(pk=slice_.pk).update(queued_max=2)
    ask = {"slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}

    def file(number: int) -> Answer:
        with transaction.atomic():
            return Caller(secrets[number]).post("gprs/", {**ask, "name": f"n{number}"})

    answers = at_once(file)

    assert Counter(answer.status_code for answer in answers) == {201: 2, 429: AT_ONCE - 2}
    assert {(answer.json()["code"], answer.json()["limit"]) for answer in answers if answer.status_code == 429} == {
        ("queue_full", "queued_max")
    }
    assert Gpr.objects.count() == 2


def test_of_many_with_one_name_one_gets_it(people: People) -> None:
    secret = factories.token(people.admin)

    answers = at_once(lambda number: Caller(secret).post("projects/", {"name": "p"}))

    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: AT_ONCE - 1}
    assert Project.objects.count() == 1


def test_of_many_templates_that_become_the_default_at_once_one_is(people: People) -> None:
    secret = factories.token(people.owner)
    slice_ = factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner)
    rows = [factories.template(slice_, name=f"t{number}") for number in range(AT_ONCE)]

    answers = at_once(lambda number: Caller(secret).patch(f"templates/{rows[number].pk}/", {"is_default": True}))

    assert [answer.status_code for answer in answers] == [200] * AT_ONCE
    assert GprTemplate.objects.filter(is_default=True).count() == 1


def test_of_many_who_change_one_version_one_does(people: People) -> None:
    secret = factories.token(people.owner)
    gpr = factories.gpr(factories.make_slice(factories.cluster("aurora"), owner=people.owner), people.owner)

    answers = at_once(lambda number: Caller(secret).patch(f"gprs/{gpr.pk}/", {"name": f"n{number}", "version": 1}))

    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: AT_ONCE - 1}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"stale_version"}
    gpr.refresh_from_db()
    assert gpr.version == 2


def test_of_two_owners_who_demote_each_other_one_stays(people: People) -> None:
    slice_ = factories.make_slice(name="vision", owner=people.owner)
    member_set(slice_=slice_, user=people.outsider, role=Role.OWNER, actor=None, now=slice_.created_at)
    secrets = [factories.token(people.owner), factories.token(people.outsider)] * 2
    others = ["outsider", "owner"] * 2

    answers = at_once(lambda n: Caller(secrets[n]).post("slices/vision/members/", {"user": others[n], "role": "viewer"}))

    assert 201 in {answer.status_code for answer in answers}
    assert slice_.memberships.filter(role=Role.OWNER).count() == 1


def test_a_workspace_that_is_opened_again_while_its_project_is_archived_stays_archived(people: People) -> None:
    slice_ = factories.make_slice(name="vision", owner=people.owner)
    now = slice_.created_at
    slice_close(slice_=slice_, to=Life.ARCHIVED, drain=False, actor=people.admin, now=now)

    def restore() -> None:
        with closing(connection):
            slice_restore(slice_=slice_, actor=people.admin, now=now)

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            project_close(project=slice_.project, to=Life.ARCHIVED, drain=False, actor=people.admin, now=now)
            restored = pool.submit(restore)
            wait_until(lambda: lock_waiter_count() == 1)
        with pytest.raises(Conflict):
            restored.result()
    assert Slice.objects.get().life == Life.ARCHIVED


def test_who_deletes_a_template_while_requests_are_filed_from_it_spoils_none(people: People) -> None:
    """They have read it, and wait for their turn to file; each in a transaction of its own, as in processes of their own."""
    secrets = [factories.token(people.owner) for _ in range(3)]
    slice_ = factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner)
    template = factories.template(slice_, asked={"shape": SHAPE, "nodes": 1, "duration_s": 3600})

    def file(secret: str) -> int:
        with closing(connection), transaction.atomic():
            return Caller(secret).post("gprs/", {"name": "train", "slice": "vision", "template": str(template.pk)}).status_code

    def delete() -> int:
        with closing(connection):
            return Caller(secrets[2]).delete(f"templates/{template.pk}/").status_code

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            plan_lock()
            filed = [pool.submit(file, secret) for secret in secrets[:2]]
            wait_until(lambda: lock_waiter_count() == 2)
            deleted = pool.submit(delete)
            wait_until(lambda: deleted.done() or lock_waiter_count() == 3)
        assert ([each.result() for each in filed], deleted.result()) == ([201, 201], 204)
    assert Gpr.objects.filter(state="QUEUED", template=None).count() == 2


def test_an_estimate_waits_for_nobody_who_plans(people: People) -> None:
    secret = factories.token(people.owner)
    factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner)

    def ask() -> int:
        with closing(connection):
            return Caller(secret).post("gprs/estimate/", {"slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}).status_code

    with ThreadPoolExecutor() as pool, transaction.atomic():
        plan_lock()
        assert pool.submit(ask).result(timeout=ANSWER_MOST_S) == 200


def test_of_many_changes_on_one_condition_one_is_made(people: People) -> None:
    secret = factories.token(people.owner)
    slice_ = factories.make_slice(factories.cluster("aurora"), name="vision", owner=people.owner)
    caller = Caller(secret)
    made = caller.post("templates/", {"name": "small", "slice": slice_.name, "nodes": 1})
    path = f"/api/v1/templates/{made.json()['id']}/"

    answers = at_once(lambda number: Caller(secret).client.patch(path, {"nodes": number + 2}, headers={"If-Match": made["ETag"]}))

    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: AT_ONCE - 1}

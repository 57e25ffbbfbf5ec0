"""An idle box by REST and on its page: who sees it, and who keeps it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.clock import db_now
from gpr.cluster_requests.life_marks import life_marks_of
from gpr.idle.services import idle_warn
from gpr.models import Gpr, IdleBox
from gpr.requests.ending import gpr_release
from journal.services import event_record
from protocol.assignments import Phase
from slices.policies.services import policy_change, policy_of
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.pages.user_world import HTMX, client_of, text, version_in

HOUR = timedelta(hours=1)


@pytest.fixture
def idle(world: World) -> Gpr:
    gpr = factories.active(world.slice, world.people.owner, nodes=1, idle_timeout_s=7200)
    IdleBox.objects.create(gpr=gpr, run=gpr.run, idle_since_at=db_now() - HOUR)
    return gpr


@pytest.mark.both_databases
def test_its_members_see_that_it_is_idle_and_who_may_change_it_keeps_it(
    world: World, idle: Gpr, owner: Caller, teammate: Caller, outsider: Caller
) -> None:
    path = f"gprs/{idle.pk}/"
    told = teammate.get(path).json()["idle"]
    assert told["timeout_s"] == 7200
    assert [row["idle"] for row in teammate.get("gprs/").json()["results"]] == [told]

    assert_problem(teammate.post(f"{path}keep/"), 403, "not_allowed")
    assert outsider.post(f"{path}keep/").status_code == 404
    kept = owner.post(f"{path}keep/")

    assert (kept.status_code, kept.json()["idle"]["since_at"] > told["since_at"]) == (200, True)
    busy = factories.active(world.foreign_slice, world.people.outsider, nodes=1)
    assert_problem(outsider.post(f"gprs/{busy.pk}/keep/"), 409, "conflict")


def test_where_the_policy_does_not_let_members_keep_it_an_administrator_does(world: World, idle: Gpr, owner: Caller, admin: Caller) -> None:
    policy_change(policy=policy_of(world.slice), terms={"may_keep_idle": False}, actor=world.people.admin, now=db_now())

    assert_problem(owner.post(f"gprs/{idle.pk}/keep/"), 403, "not_allowed")
    assert "Keep it" not in text(client_of(world.people.owner).get(f"/gprs/{idle.pk}/"))
    assert admin.post(f"gprs/{idle.pk}/keep/").status_code == 200


def test_the_page_of_an_idle_box_says_so_and_keeps_it_by_one_click(world: World, idle: Gpr) -> None:
    owner, teammate = client_of(world.people.owner), client_of(world.people.teammate)
    markup = text(owner.get(f"/gprs/{idle.pk}/"))
    assert "Its GPUs do nothing." in markup
    assert ("Keep it" in markup, "Keep it" in text(teammate.get(f"/gprs/{idle.pk}/"))) == (True, False)

    answer = owner.post(f"/gprs/{idle.pk}/keep/", {"version": version_in(markup)}, headers=HTMX)

    assert (answer.status_code // 100, "egs:toast" in answer.headers["HX-Trigger"]) == (2, True)
    assert IdleBox.objects.get().kept_at is not None
    assert client_of(world.people.outsider).post(f"/gprs/{idle.pk}/keep/", {"version": "1"}).status_code == 404


def test_the_page_of_a_box_that_ended_says_what_it_used(world: World, idle: Gpr) -> None:
    gpr_release(gpr=idle, actor=world.people.owner, now=db_now())
    factories.observe(idle, Phase.RELEASED)
    event_record(kind="gpr.used", message="It held 8 GPU-hours.", at=db_now(), gpr_id=idle.pk, slice_id=world.slice.pk)

    assert 'id="gpr-used">It held 8 GPU-hours.' in text(client_of(world.people.teammate).get(f"/gprs/{idle.pk}/"))


def test_agents_tell_of_the_warning_in_the_cluster(world: World, idle: Gpr) -> None:
    now = db_now()
    idle_warn(known_at=now, now=now)

    (mark,) = [mark for mark in life_marks_of(world.cluster.pk, now=now) if mark.reason]

    assert (mark.reason, mark.state, mark.nodes) == ("Idle", "ACTIVE", ("aurora-0",))
    assert "have done nothing since" in mark.message

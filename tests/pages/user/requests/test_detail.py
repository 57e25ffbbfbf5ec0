"""Each of the four personas sees the page of a GPU request in every state, whole and in parts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from accounts.models import Scope
from core.clock import db_now
from gpr.allocation.advance import advance
from gpr.allocation.allocator import tick
from gpr.approvals.services import gpr_reject
from gpr.models import Gpr, GprState, Promise, PromiseMove
from gpr.queue.decisions import gpr_set_priority
from gpr.replacement.services import node_replace
from gpr.requests.ending import gpr_extend, gpr_release
from inventory.models import Gpu, Reservation, ReservationState, StepResult
from journal.models import Event
from planner.causes import Cause
from portal_admin.pages.plan.queue import inspector
from portal_shared.parts import promises
from portal_user.pages.requests.detail import _gpu_title
from protocol.agents.events import Outcome
from protocol.assignments import Phase
from slices.models import Quota, Slice
from slices.quotas.services import quota_create
from tests import factories
from tests.api.conftest import Caller
from tests.builders import SHAPE, agent_says
from tests.pages.user_world import HTMX, World, text

# Each day: tests/api/requests/test_retrieve.py, and test_every_page.py, which opens the page and its parts
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

PARTS = ("now", "nodes", "steps", "why", "events")


def page(client: Client, gpr: Gpr, part: str = "") -> str:
    return text(client.get(f"/gprs/{gpr.pk}/", {"part": part} if part else {}))


def test_its_nodes_tell_which_took_the_place_of_which_and_who_is_asked(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    row = factories.held(gpr)[0]
    spare = replaced_by(gpr, row, world)

    shown = page(owner, gpr, "nodes")
    assert f"{spare.node.name} is being checked, to take the place of {row.node.name}. Its fan is loud." in shown
    assert "spare: not begun" in shown
    assert "open, to be replaced" in shown

    factories.observe(gpr, Phase.ACTIVE)
    shown = page(owner, gpr, "nodes")
    assert f"{spare.node.name} took the place of {row.node.name}. Its fan is loud." in shown
    assert gpr.state == GprState.ACTIVE
    for part in ("", *PARTS):
        assert owner.get(f"/gprs/{gpr.pk}/", {"part": part}).status_code == 200


def test_steps_of_a_spare_and_of_the_node_it_replaced_are_no_steps_of_the_box(world: World, owner: Client) -> None:
    gpr = factories.started(world.slice, world.people.owner, name="runs", nodes=2)
    rows, earlier = factories.held(gpr), db_now() - timedelta(hours=5)
    for each in rows:
        for name in ("claim", *each.entry_steps, "open"):
            step(each, name, at=earlier)
    factories.observe(gpr, Phase.ACTIVE)
    replaced = rows[0]
    spare = replaced_by(gpr, replaced, world)
    later = db_now()
    step(spare, "claim", at=later)

    coming = page(owner, gpr, "steps")
    assert "2 nodes, all passed in 2 s" in coming
    assert f"Spare {spare.node.name}: entry steps" in coming
    assert "1 of 10 done" in coming

    for name in (*spare.entry_steps, "open"):
        step(spare, name, at=later)
    factories.observe(gpr, Phase.ACTIVE)
    step(replaced, "close")

    swapped = page(owner, gpr, "steps")
    assert "2 nodes, all passed in 2 s" in swapped
    assert "Spare" not in swapped
    assert f"Replaced {replaced.node.name}: exit steps" in swapped
    assert "1 of 8 done" in swapped
    assert ">Exit steps<" not in swapped


def test_a_spare_that_failed_is_told_of_and_is_no_trouble_of_the_gpr(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    row = factories.held(gpr)[0]
    spare = replaced_by(gpr, row, world)
    for phase in (Phase.FAILED, Phase.RELEASED):
        agent_says(spare, phase, now=db_now(), failure="check nccl failed 2 times")
    advance(now=db_now())

    assert f"{spare.node.name} did not take the place of {row.node.name}. check nccl failed 2 times" in page(owner, gpr, "nodes")
    assert "check nccl failed" not in page(owner, gpr, "now")


def test_a_node_replaced_by_one_that_was_replaced_in_turn_is_shown_while_it_leaves(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    first = factories.held(gpr)[0]
    second = replaced_by(gpr, first, world)
    joined(second)
    joined(replaced_by(gpr, second, world))
    step(first, "close")

    shown = page(owner, gpr, "steps")

    for each in (first, second):
        each.refresh_from_db()
        assert each.state == ReservationState.HELD
        assert f"Replaced {each.node.name}: exit steps" in shown


def test_the_failed_check_of_a_spare_is_shown_until_its_node_is_free(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    spare = replaced_by(gpr, factories.held(gpr)[0], world)
    step(spare, "claim")
    step(spare, spare.entry_steps[0], outcome=Outcome.FAILED, log="ECC errors: 17")
    assert "ECC errors: 17" in page(owner, gpr, "steps")

    agent_says(spare, Phase.FAILED, now=db_now(), failure="check failed 2 times")
    advance(now=db_now())
    leaving = page(owner, gpr, "steps")

    assert f"Spare {spare.node.name}: entry steps" in leaving
    assert "ECC errors: 17" in leaving
    assert "1 done, 8 skipped" in leaving
    assert f"Spare {spare.node.name}: exit steps" in leaving

    agent_says(spare, Phase.RELEASED, now=db_now(), failure="check failed 2 times")
    assert "Spare" not in page(owner, gpr, "steps")


def test_a_spare_of_a_box_that_ended_is_shown_on_its_way_out(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    spare = replaced_by(gpr, factories.held(gpr)[0], world)
    step(spare, "claim")
    gpr_release(gpr=gpr, actor=world.people.owner, now=db_now())
    step(spare, "close")

    shown = page(owner, gpr, "steps")

    assert f"Spare {spare.node.name}: exit steps" in shown
    assert f"Spare {spare.node.name}: entry steps" not in shown
    assert "1 of 8 done" in shown


def test_nodes_that_were_checked_one_after_the_other_took_as_long_as_both(world: World, owner: Client) -> None:
    gpr = factories.started(world.slice, world.people.owner, name="runs", nodes=2)
    began_at = db_now() - timedelta(minutes=30)
    for number, each in enumerate(factories.held(gpr)):
        for name in ("claim", *each.entry_steps, "open"):
            step(each, name, at=began_at + timedelta(minutes=20 * number))
    factories.observe(gpr, Phase.ACTIVE)

    assert "2 nodes, all passed in 20 min" in page(owner, gpr, "steps")


def test_a_step_that_failed_thousands_of_times_hides_neither_what_came_before_nor_after(world: World, owner: Client) -> None:
    gpr = factories.started(world.slice, world.people.owner, name="runs")
    row, began_at = factories.held(gpr)[0], db_now() - timedelta(hours=12)
    for name in ("claim", *row.entry_steps, "open", "close"):
        step(row, name, at=began_at)
    factories.observe(gpr, Phase.ACTIVE)
    gpr_release(gpr=gpr, actor=world.people.owner, now=db_now())
    StepResult.objects.bulk_create(
        StepResult(reservation=row, step="drain", attempt=n + 1, outcome=Outcome.FAILED, started_at=at, ended_at=at, log=f"try {n + 1}.")
        for n in range(2000)
        for at in [began_at + timedelta(seconds=20 * n)]
    )
    step(row, "drain", attempt=2001, log="all gone")
    step(row, "release")

    shown = page(owner, gpr, "steps")

    assert "1 node, all passed in 2 s" in shown
    assert "3 of 8 done" in shown
    assert "1 failed" not in shown
    assert "try 2000." in shown
    assert "all gone" in shown
    assert "try 1." not in shown


def test_steps_that_a_node_left_out_on_its_way_out_do_not_wait_once_it_is_free(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    row = factories.held(gpr)[0]
    joined(replaced_by(gpr, row, world))
    step(row, "release", log="node is not in the cluster any more")
    agent_says(row, Phase.RELEASED, now=db_now())

    (replaced,) = [each for each in page(owner, gpr, "steps").split("panel-head") if "Replaced" in each]

    assert "1 done, 7 skipped" in replaced
    assert replaced.count("Skipped") == 7
    assert "Waiting" not in replaced


def test_what_was_logged_on_another_day_says_the_day(world: World, owner: Client) -> None:
    gpr = factories.started(world.slice, world.people.owner, name="starts")
    row, today_at = factories.held(gpr)[0], db_now()
    step(row, "claim", at=today_at)
    step(row, "node_ready", at=today_at - timedelta(days=2))

    shown = page(owner, gpr, "steps")

    assert f">{today_at:%H:%M:%S} aurora-0  passed" in shown
    assert f">{today_at - timedelta(days=2):%a %H:%M:%S} aurora-0  passed" in shown


def replaced_by(gpr: Gpr, row: Reservation, world: World) -> Reservation:
    """Makes a spare that enters in its place."""
    factories.add_nodes(row.cluster, 1)
    node_replace(gpr=gpr, node_id=row.node_id, actor=world.people.admin, why="Its fan is loud.", now=db_now())
    return Reservation.objects.get(replaces=row)


def joined(spare: Reservation) -> None:
    agent_says(spare, Phase.ACTIVE, now=db_now(), active_at=db_now())
    advance(now=db_now())


def step(
    row: Reservation, name: str, *, outcome: Outcome = Outcome.OK, attempt: int = 1, log: str = "", at: datetime | None = None
) -> None:
    now = at or db_now()
    StepResult.objects.create(
        reservation=row, step=name, attempt=attempt, outcome=outcome, started_at=now - timedelta(seconds=2), ended_at=now, log=log
    )


@pytest.mark.daily
@pytest.mark.parametrize(("persona", "answer"), [("owner", 200), ("teammate", 200), ("outsider", 404), ("admin", 200)])
def test_it_is_for_the_members_of_its_workspace(persona: str, answer: int, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    client = world.client(persona)

    for part in ("", *PARTS):
        response = client.get(f"/gprs/{gpr.pk}/", {"part": part})
        assert response.status_code == answer, part
        assert (b"runs" in response.content) <= (answer == 200)


def test_what_is_not_there_and_what_is_not_his_look_alike(world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, name="secret")
    outsider = world.client("outsider")

    theirs, none = outsider.get(f"/gprs/{gpr.pk}/"), outsider.get(f"/gprs/{uuid4()}/")

    assert theirs.status_code == none.status_code == 404
    assert theirs.content == none.content


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_a_fragment(part: str, world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")

    assert "<html" not in page(owner, gpr, part)


def test_the_state_and_the_time_beside_it_come_in_one_answer(world: World, owner: Client) -> None:
    """Fetched one after the other they would contradict each other for a moment: Queued above, 2 h left below."""
    gpr = factories.active(world.slice, world.people.owner, name="runs")

    whole, part = page(owner, gpr), page(owner, gpr, "now")

    for markup in (whole, part):
        assert 'id="gpr-head"' in markup
        assert 'id="gpr-hero"' in markup
    for name in ("gpr-head", "gpr-hero"):
        assert not re.search(rf'id="{name}"[^>]*hx-get', whole)


def test_events_speak_to_people_and_in_the_zone_of_the_reader(world: World, owner: Client) -> None:
    """`1 node`, `2 h`, and times as on the clock on the wall; the exact moment is in the element, the API has it in UTC."""
    gpr = factories.active(world.slice, world.people.owner, name="runs", duration_s=7200)
    gpr_extend(gpr=gpr, extra_s=5400, actor=world.people.owner, now=db_now())
    owner.cookies["egs_zone"] = "Asia/Kathmandu"
    assert gpr.ends_at is not None
    ends_at = gpr.ends_at.replace(microsecond=0).astimezone(UTC)

    markup = page(owner, gpr, "events")

    assert "runs was requested: 1 node with all GPUs (H100-80GB) for 2 h at priority 101." in markup
    assert "1 node of cluster aurora is being prepared for runs." in markup
    shown = re.search(r'runs was extended by 1 h 30 min, to <time datetime="([^"]+)" title="[^"]+">([^<]+)</time>\.', markup)
    assert shown
    assert shown[1] == ends_at.isoformat()
    assert shown[2].endswith(f"{ends_at.astimezone(ZoneInfo('Asia/Kathmandu')):%H:%M}")
    told = Event.objects.get(gpr_id=gpr.pk, kind="gpr.extended").message
    assert told == f"runs was extended by 1 h 30 min, to {ends_at:%Y-%m-%d %H:%M:%S} UTC."


def test_what_only_looks_like_a_time_stays_as_it_was_written(world: World, owner: Client) -> None:
    """Reasons are typed by people."""
    gpr = factories.gpr(world.slice, world.people.owner, name="no")
    gpr_reject(gpr=gpr, actor=world.people.admin, why="Since 2026-13-45 99:00:00 UTC <b>", now=db_now())

    assert "Since 2026-13-45 99:00:00 UTC &lt;b&gt;" in page(owner, gpr, "events")


def test_a_part_that_there_is_not_is_the_whole_page(world: World, owner: Client) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    assert "<html" in page(owner, gpr, "odd")


def test_a_waiting_one_shows_start_place_promise_and_whom_it_waits_for(world: World, owner: Client) -> None:
    runs = factories.active(world.slice, world.people.owner, name="runs", nodes=2, duration_s=7200)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)

    markup = page(owner, waits)

    assert "Starts in 2 h" in markup
    assert re.search(r"<dt>Place</dt>\s*<dd >1", markup)
    assert "Promised by" in markup
    assert f'href="/gprs/{runs.pk}/"' in markup
    assert "Edit" in markup
    assert "Cancel request" in markup


def test_another_workspace_is_never_named(world: World, owner: Client) -> None:
    foreign = factories.active(world.foreign, world.people.outsider, name="canary-job", nodes=2)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    PromiseMove.objects.create(
        gpr=waits, at=db_now(), old_start_at=db_now(), new_start_at=db_now(), cause=Cause.OVERRUN, cause_id=str(foreign.pk)
    )

    markup = page(owner, waits)

    assert "Another workspace&#x27;s request" in markup
    assert "a request before it gave its nodes back late" in markup
    assert "canary" not in markup
    assert str(foreign.pk) not in markup


def test_a_promise_that_moved_says_when_from_where_and_why(world: World, owner: Client) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2, duration_s=7200)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    promise = Promise.objects.get(gpr=waits)
    first, later = promise.promised_start_at - timedelta(minutes=12), promise.promised_start_at
    Promise.objects.filter(gpr=waits).update(first_promised_start_at=first)
    PromiseMove.objects.create(
        gpr=waits, at=db_now(), old_start_at=first, new_start_at=later, cause=Cause.NODE_FAILURE, cause_id="aurora-1"
    )

    markup = page(owner, waits)

    assert "12 min late" in markup
    assert "since a node that it was planned on went away." in markup
    assert 'class="slip"' in markup


def test_one_that_waits_for_approval_says_for_what(world: World, owner: Client) -> None:
    Slice.objects.filter(pk=world.slice.pk).update(nodes_approval=1)
    world.slice.refresh_from_db()
    held = factories.gpr(world.slice, world.people.owner, name="held", nodes=2)

    markup = page(owner, held)

    assert "Waits for approval" in markup
    assert "2 nodes; more than 1 need approval." in markup


def test_one_that_starts_shows_its_steps_node_by_node_and_why_a_node_does_not_go_on(world: World, owner: Client) -> None:
    started = factories.started(world.slice, world.people.owner, name="starts", nodes=2)
    first, second = factories.held(started)
    for row in (first, second):
        step(row, "claim")
    step(first, "node_ready", log="node is ready")
    step(second, "node_ready", outcome=Outcome.FAILED, log="kubelet says no")
    Reservation.objects.filter(pk=second.pk).update(failure="node_ready: kubelet says no", phase=Phase.ENTERING)

    markup = page(owner, started)

    assert "Step 2 of 10" in markup
    assert "0 of 2 nodes ready" in markup
    assert "A node has a problem." in markup
    assert "aurora-1: node_ready: kubelet says no." in markup
    assert "1 of 2, 1 failed" in markup
    assert "aurora-0  node is ready" in markup
    assert markup.count('class="gpu heat-none"') == 16
    assert "Release early" in markup


def test_an_active_one_shows_the_time_that_is_left(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs", nodes=2, duration_s=7200)

    markup = page(owner, gpr)

    assert "pods get 2 min to stop, then are ended by force" in markup

    assert re.search(r'class="big"><time[^>]*>(2 h|1 h 59 min) left', markup)
    assert re.search(r"ends <time", markup)
    assert f'href="/gprs/{gpr.pk}/release/"' in markup
    assert f'href="/gprs/{gpr.pk}/extend/"' in markup
    assert "kept" in markup
    assert "Extend" in markup
    assert "GPUs of aurora-1" in markup


def test_one_that_leaves_says_when_it_is_clean(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    gpr_release(gpr=gpr, actor=world.people.owner, now=db_now())

    markup = page(owner, gpr)

    assert re.search(r"Clean in about \d+ s", markup)
    assert "0 of 1 node back" in markup
    assert "Release early" not in markup


def test_one_that_is_over_says_what_happened_and_can_be_asked_for_again(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    gpr_release(gpr=gpr, actor=world.people.owner, now=db_now())
    factories.observe(gpr, Phase.RELEASED)

    markup = page(owner, gpr)

    assert gpr.state == GprState.RELEASED
    assert "Released by owner after" in markup
    assert f"/workspaces/vision/create/?from={gpr.pk}" in markup


def test_a_rejected_one_gives_the_reason(world: World, owner: Client) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, name="no")
    gpr_reject(gpr=gpr, actor=world.people.admin, why="Split it.", now=db_now())

    markup = page(owner, gpr)

    assert "Rejected by admin: Split it." in markup
    assert "It never started." in markup
    assert "when it starts" not in markup, "an ended request promises no start"


@pytest.mark.daily
def test_who_may_not_act_sees_no_buttons(world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs")
    acts = ("Release early", "Extend", "Request again")

    for client in (world.client("teammate"), world.client("owner", Scope.READ)):
        markup = page(client, gpr)
        assert not any(act in markup for act in acts)


def test_markup_in_names_and_logs_is_only_text(world: World, owner: Client) -> None:
    gpr = factories.started(world.slice, world.people.owner, name="<script>x</script>", model={"name": "<b>"})
    step(factories.held(gpr)[0], "claim", log="</pre><img src=x>")

    markup = page(owner, gpr)

    assert "<script>x" not in markup
    assert "<img" not in markup
    assert "<b>" not in markup


def test_a_login_that_ends_inside_a_fragment_leads_the_whole_page_to_the_login(world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    response = Client().get(f"/gprs/{gpr.pk}/?part=now", headers={**HTMX, "HX-Current-URL": f"http://testserver/gprs/{gpr.pk}/"})

    assert response.status_code == 401
    assert response["HX-Redirect"] == f"/login/?next=%2Fgprs%2F{gpr.pk}%2F"


def test_every_cause_of_a_moved_promise_is_put_into_words_for_owners_and_for_administrators() -> None:
    assert set(promises.CAUSE_WORDS) == set(inspector.CAUSE_WORDS) == set(Cause)


def test_of_a_part_of_a_node_no_gpu_is_said_to_be_a_certain_piece_of_hardware() -> None:
    """The device plugin chooses: the index is EGS's own count. A box that has the whole node has all of its hardware."""
    gpu = Gpu(model="H100", memory_gib=80, uuid="node-0", hardware_uuid="GPU-a")

    assert _gpu_title(gpu, is_whole=True) == "H100, 80 GiB, GPU-a"
    assert _gpu_title(gpu, is_whole=False) == "H100, 80 GiB"


def told(world: World, gpr: Gpr) -> tuple[dict[str, Any], str, str]:
    """Returns what the API, the list of its workspace and its own page tell."""
    owner = world.client("owner")
    row: dict[str, Any] = Caller(factories.token(world.people.owner)).get(f"gprs/{gpr.pk}/").json()
    return row, text(owner.get(f"/workspaces/{gpr.slice.name}/")), text(owner.get(f"/gprs/{gpr.pk}/"))


def test_a_priority_that_changes_no_plan_leaves_one_account_of_place_and_of_who_is_before_it(world: World) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner)
    factories.gpr(second, world.people.owner, name="earlier", nodes=2)
    third = factories.make_slice(world.cluster, name="third", owner=world.people.owner)
    raised = factories.gpr(third, world.people.owner, name="raised", nodes=2)
    gpr_set_priority(gpr=raised, priority=300, actor=world.people.admin, why="", now=db_now())
    tick()

    row, listed, shown = told(world, raised)

    assert (row["position"], row["explanation"]["ahead_count"]) == (2, 1)
    assert [blocker["name"] for blocker in row["explanation"]["blockers"]] == ["earlier"]
    for markup in (listed, shown):
        assert "ahead of it" in markup
    assert "Place 2" in listed
    assert re.search(r"Place</dt>\s*<dd[^>]*>\s*2\b", shown)


def test_a_quota_that_is_lowered_beneath_it_leaves_no_promise_beside_that_it_can_never_start(world: World) -> None:
    factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    waits = factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)
    quota_create(owner=world.slice, shape=SHAPE, change={"most_gpus": 8}, actor=world.people.admin, now=db_now())
    tick()

    row, listed, shown = told(world, waits)

    assert (row["explanation"]["reason"], row["position"], row["promised_start_at"], row["estimate"]) == ("never_fits", None, None, None)
    for markup in (listed, shown):
        assert "It can never start, and nothing is promised to it" in markup
        assert "Place" not in markup
        assert "Promised by" not in markup

    Quota.objects.all().delete()
    tick()
    row, _, shown = told(world, waits)
    assert (row["position"], row["promised_start_at"] is not None) == (1, True)
    assert "Promised by" in shown

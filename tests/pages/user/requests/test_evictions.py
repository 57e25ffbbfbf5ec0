"""Members of a workspace see their eviction, but not the request for which it happens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client, override_settings

from accounts.models import Scope
from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.evictions.failed_jobs import jobs_failed_take
from gpr.models import EndReason, Gpr, GprState, VictimKind
from gpr.queue.decisions import gpr_evict
from gpr.requests.ending import exit_begin
from portal_user.pages.notices import WAS
from protocol.assignments import Phase
from protocol.tenancy.waiting_pods import JobFailed
from tests import factories
from tests.api.conftest import Caller
from tests.pages.user_world import WORKSPACE, World, text

# Each day: tests/api/queue/test_evictions.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
FOREIGN = ("canary", "outsider")


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    with override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=60):
        yield


def noticed(world: World, **changes: bool) -> Gpr:
    victim, _ = factories.noticed(world.slice, world.people.owner, world.foreign, world.people.outsider, **changes)
    return victim


def evicted(gpr: Gpr) -> None:
    factories.observe(gpr, Phase.RELEASED)
    assert gpr.state == GprState.QUEUED


def test_the_page_says_when_why_and_when_the_rest_would_start(world: World, owner: Client) -> None:
    victim = noticed(world)
    tick(now=db_now())

    for markup in (text(owner.get(f"/gprs/{victim.pk}/")), text(owner.get(f"/gprs/{victim.pk}/?part=now"))):
        assert 'id="gpr-notice"' in markup
        assert "Will be evicted" in markup
        assert re.search(r"in (10|9) min", markup)
        assert "a request of higher priority that may evict needs its GPUs. Save its work." in markup
        assert re.search(r"The 23 h (50|49) min that are left would start about", markup)
        assert "Extend" not in markup  # it would be refused
        assert not [name for name in FOREIGN if name in markup]


def test_the_list_says_it_as_well(world: World, owner: Client) -> None:
    noticed(world)

    markup = text(owner.get(WORKSPACE))

    assert '<div class="late why clip" title="Will be evicted at ' in markup
    assert re.search(r"\(in (10|9) min\): a request of higher priority that may evict needs its GPUs\.", markup)
    assert not [name for name in FOREIGN if name in markup]


def test_who_does_not_wait_again_is_told_so(world: World, owner: Client) -> None:
    victim = noticed(world, requeue_on_failure=False)

    assert "It is not queued again, as its owner wished." in text(owner.get(f"/gprs/{victim.pk}/?part=now"))


def test_without_notice_nothing_is_said(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner)

    assert "evicted" not in text(owner.get(f"/gprs/{gpr.pk}/?part=now"))
    assert "waits again" not in text(owner.get(f"/gprs/{gpr.pk}/?part=why"))


def test_when_it_waits_again_the_page_says_since_when_and_why(world: World, owner: Client) -> None:
    victim = noticed(world)
    exit_begin(gpr=victim, reason=EndReason.EVICTED, now=db_now())
    evicted(victim)

    markup = text(owner.get(f"/gprs/{victim.pk}/?part=why"))

    assert "Evicted at " in markup
    assert f": {WAS[VictimKind.PRIORITY]}. It waits again since " in markup
    assert "has failed" not in markup
    # What it waited before it ran, and how long it ran, is no part of its wait.
    Gpr.objects.filter(pk=victim.pk).update(queued_at=F("queued_at") - timedelta(hours=6))
    assert re.search(r"<dt>Queued</dt>\s*<dd[^>]*>\d+ s ", text(owner.get(f"/gprs/{victim.pk}/?part=now")))
    assert not [name for name in FOREIGN if name in markup]


@pytest.mark.parametrize("waits_again", [True, False])
def test_while_and_after_its_nodes_are_taken_back_the_page_says_how_much_of_its_time_it_has_had(
    world: World, owner: Client, waits_again: bool
) -> None:
    victim = noticed(world, requeue_on_failure=waits_again)
    Gpr.objects.filter(pk=victim.pk).update(active_at=F("active_at") - timedelta(hours=6))
    victim.refresh_from_db()
    assert victim.ends_at is not None
    exit_begin(gpr=victim, reason=EndReason.EVICTED, now=victim.ends_at)

    had = re.compile(r"26 %\s*<small>6 h 1\d min of 1 d booked")
    assert had.search(text(owner.get(f"/gprs/{victim.pk}/?part=now")))
    if not waits_again:
        factories.observe(victim, Phase.RELEASED)
        assert victim.state == GprState.EVICTED
        assert had.search(text(owner.get(f"/gprs/{victim.pk}/?part=now")))
        assert victim.exiting_at == victim.ends_at


def test_one_that_an_administrator_evicted_says_so_and_names_no_right(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    gpr_evict(gpr=gpr, actor=world.people.admin, why="Repair.", now=db_now())
    evicted(gpr)

    markup = text(owner.get(f"/gprs/{gpr.pk}/?part=why"))

    assert "It waits again since " in markup
    assert [kind for kind, why in WAS.items() if why in markup] == [VictimKind.ADMIN]


def test_when_its_job_failed_with_the_box_the_page_and_the_api_ask_what_it_waits_for(world: World, owner: Client) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    gpr_evict(gpr=gpr, actor=world.people.admin, why="Repair.", now=db_now())
    failed = [JobFailed(gpr_id=str(gpr.pk), namespace="vision", name=name) for name in ("train", "<b>eval")]
    jobs_failed_take(cluster=world.cluster, failed=failed, now=db_now())
    evicted(gpr)

    markup = text(owner.get(f"/gprs/{gpr.pk}/"))

    assert "Jobs vision/train, vision/&lt;b&gt;eval have failed since its nodes were taken back, and no GPU pod waits." in markup
    assert "Cancel the request, or start them again." in markup
    assert f"/gprs/{gpr.pk}/delete/" in markup
    told = Caller(factories.token(world.people.owner, Scope.READ)).get(f"gprs/{gpr.pk}/").json()
    assert told["failed_jobs"] == [
        "vision/train",
        "vision/<b>eval",
    ]

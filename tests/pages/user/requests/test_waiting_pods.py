"""The page of a request shows the pods of its workspace that wait for it, and the Jobs that fail before it is expected to start."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.test import Client

from core.clock import db_now
from gpr.models import Gpr
from inventory.models import AgentSession
from protocol.tenancy.waiting_pods import JobWaiting, PodsWaiting, ReasonWaiting
from slices.models import Namespace
from slices.tenancy import waiting_observe
from tests import factories
from tests.pages.user_world import World, make_world, text
from tests.slices.kubeconfigs import ready_namespace

# Each day: tests/slices/test_waiting_pods.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]


@pytest.fixture(scope="module")
def built_world(module_db: None) -> World:
    made = make_world()
    ready_namespace(made.slice, made.cluster, at=db_now(), name="vision-train")
    return made


@pytest.fixture
def waits(world: World) -> Gpr:
    """It waits behind one of ten hours."""
    factories.active(world.foreign, world.people.outsider, name="theirs", nodes=2, duration_s=36_000)
    return factories.gpr(world.slice, world.people.owner, name="waits", nodes=2)


def say(world: World, *jobs: JobWaiting, count: int = 7) -> None:
    reasons = (
        ReasonWaiting(text="Waits for GPUs.", count=5, names=("train-0", "train-1", "<b>train-2")),
        ReasonWaiting(text="This pod will not start: it has resource claims.", count=1, names=("odd",)),
    )
    waiting_observe(cluster=world.cluster, waiting=(PodsWaiting(namespace="vision-train", count=count, reasons=reasons, jobs=jobs),))


def use(client: Client, gpr: Gpr) -> str:
    return re.sub(r"\s+", " ", text(client.get(f"/gprs/{gpr.pk}/", {"part": "use"})))


def job(name: str, *, hours: float) -> JobWaiting:
    return JobWaiting(name=name, count=3, fails_s=(db_now() + timedelta(hours=hours)).timestamp())


def test_how_many_pods_wait_and_why_stands_on_its_page(world: World, waits: Gpr) -> None:
    say(world)

    shown = use(world.client("owner"), waits)

    assert "7 GPU pods of vision-train in aurora wait:" in shown
    assert "train-0, train-1, &lt;b&gt;train-2 and 2 more. Waits for GPUs." in shown
    assert "odd. This pod will not start: it has resource claims." in shown
    assert "1 more, for other reasons." in shown


def test_a_job_that_fails_before_the_start_is_warned_of_and_one_that_does_not_is_not(world: World, waits: Gpr) -> None:
    short = job("short", hours=2)
    say(world, short, job("long", hours=48))
    waits.refresh_from_db()
    assert waits.planned_start_at is not None

    shown = unescape(use(world.client("teammate"), waits))

    fails_at = datetime.fromtimestamp(short.fails_s, UTC)
    (told,) = re.findall(r"Job (\w+) fails at (.*?): its activeDeadlineSeconds runs while .*? expected to start at (.*?)\. Set", shown)
    assert (told[0], told[1][-5:], told[2][-5:]) == ("short", f"{fails_at:%H:%M}", f"{waits.planned_start_at:%H:%M}")


def test_a_deadline_is_warned_of_even_if_the_start_is_unknown(world: World, waits: Gpr) -> None:
    say(world, job("short", hours=48))
    Gpr.objects.filter(pk=waits.pk).update(planned_start_at=None)

    assert "their start is not known yet" in use(world.client("owner"), waits)


def test_of_what_has_started_or_ended_no_job_is_warned_of(world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner, name="runs", nodes=2)
    say(world, job("short", hours=1))
    shown = use(world.client("owner"), gpr)
    assert "7 GPU pods" in shown
    assert "Job short" not in shown

    Gpr.objects.filter(pk=gpr.pk).update(state="EXITING")
    assert "GPU pods" not in use(world.client("owner"), gpr)


def test_pods_of_a_cluster_where_it_may_not_start_do_not_wait_for_it(world: World, waits: Gpr) -> None:
    other = factories.cluster("borealis", nodes=2)
    world.slice.clusters.add(other)
    waits.clusters.set([other])
    say(world)

    assert "GPU pods" not in use(world.client("owner"), waits)


def test_others_requests_tell_nothing_of_them(world: World, waits: Gpr) -> None:
    theirs = factories.gpr(world.foreign, world.people.outsider, name="also", nodes=1)
    say(world)

    assert "vision-train" not in use(world.client("outsider"), theirs)
    assert world.client("outsider").get(f"/gprs/{waits.pk}/").status_code == 404


def test_what_a_silent_cluster_told_last_is_not_shown_as_if_it_were_so_still(world: World, waits: Gpr) -> None:
    say(world, job("short", hours=2))
    AgentSession.objects.update(last_sync_at=db_now() - timedelta(days=1))

    shown = use(world.client("owner"), waits)

    assert "aurora is silent: which GPU pods of vision-train wait there is not known." in shown
    assert "train-0" not in shown
    assert "Job short" not in shown


def test_it_is_not_said_that_no_pod_waits_in_a_cluster_that_is_silent(world: World, waits: Gpr) -> None:
    assert "No GPU pod waits" in use(world.client("owner"), waits)

    AgentSession.objects.update(last_sync_at=db_now() - timedelta(days=1))

    assert "No GPU pod waits" not in use(world.client("owner"), waits)


def test_what_an_older_release_stored_does_not_break_the_page(world: World, waits: Gpr) -> None:
    Namespace.objects.update(waiting={"pods": 7})

    assert "GPU pods" not in use(world.client("owner"), waits)

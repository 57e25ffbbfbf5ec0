"""The same object claimed twice at once, and claimed while others do something with its GPR, on a database that really lets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from core.errors import EgsError
from gpr.allocation.allocator import tick
from gpr.cluster_requests.services import cluster_requests_take
from gpr.models import ENDED, ClusterRequestRecord, Gpr, GprState
from gpr.requests.editing import gpr_cancel
from inventory.models import Cluster
from journal.models import Event
from protocol.tenancy.cluster_requests import ClusterRequestAnswer, ClusterRequestVerdict
from tests.builders import NOW
from tests.cluster_requests.stage import ClusterRequestStage, claim, gone
from tests.effort import IS_SOAK

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]
ROUNDS = 8 if IS_SOAK else 3


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Returns what each gave, or what it was refused with."""
    barrier = Barrier(len(works))

    def one(work: Callable[[], Any]) -> Any:
        with closing(connection):
            barrier.wait()
            try:
                return work()
            except EgsError as error:
                return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


@pytest.fixture
def stage() -> ClusterRequestStage:
    return ClusterRequestStage()


def take(stage: ClusterRequestStage, name: str, **changes: Any) -> list[ClusterRequestAnswer]:
    return cluster_requests_take(cluster=Cluster.objects.get(pk=stage.cluster.pk), requests=[claim(name, **changes)], now=NOW)


def test_one_object_that_two_connections_claim_at_once_is_filed_once(stage: ClusterRequestStage) -> None:
    for number in range(ROUNDS):
        answers = at_once(*[lambda number=number: take(stage, f"train-{number}")] * 3)

        assert len({str(answer) for answer in answers}) == 1
        assert Gpr.objects.filter(name=f"train-{number}").count() == 1
        assert Event.objects.filter(kind="gpr.claimed", data__uid=f"uid-train-{number}").count() == 1
    assert ClusterRequestRecord.objects.count() == ROUNDS


def test_messages_that_share_some_objects_file_each_once(stage: ClusterRequestStage) -> None:
    def take_some(*numbers: int) -> list[ClusterRequestAnswer]:
        cluster = Cluster.objects.get(pk=stage.cluster.pk)
        return cluster_requests_take(cluster=cluster, requests=[claim(f"train-{number}") for number in numbers], now=NOW)

    for first in range(0, 4 * ROUNDS, 4):
        answers = at_once(
            lambda first=first: take_some(first, first + 1, first + 2), lambda first=first: take_some(first + 3, first + 2, first + 1)
        )

        assert all(answer.verdict == ClusterRequestVerdict.TAKEN for some in answers for answer in some)
    assert Gpr.objects.count() == ClusterRequestRecord.objects.count() == 4 * ROUNDS


def test_one_change_that_comes_twice_at_once_is_made_once(stage: ClusterRequestStage) -> None:
    gpr = stage.filed("train")
    for generation in range(2, 2 + ROUNDS):
        answers = at_once(*[lambda generation=generation: take(stage, "train", generation=generation, priority=100 + generation)] * 2)

        assert len({str(answer) for answer in answers}) == 1
        gpr.refresh_from_db()
        assert gpr.priority == 100 + generation
        assert Event.objects.filter(kind="gpr.edited", gpr_id=gpr.pk).count() == generation - 1


def test_an_object_that_is_deleted_while_people_cancel_its_request_is_canceled_once(stage: ClusterRequestStage) -> None:
    cluster = stage.cluster
    for number in range(ROUNDS):
        gpr = stage.filed(f"train-{number}")

        _, answers = at_once(
            lambda gpr=gpr: gpr_cancel(gpr=gpr, actor=stage.owner, now=NOW),
            lambda number=number: cluster_requests_take(cluster=cluster, requests=[gone(f"train-{number}")], now=NOW),
        )

        assert [answer.verdict for answer in answers] == [ClusterRequestVerdict.TAKEN]
        assert Event.objects.filter(kind="gpr.transition", new=GprState.CANCELED, gpr_id=gpr.pk).count() == 1


def test_an_object_that_is_deleted_while_its_request_starts_ends_either_way(stage: ClusterRequestStage) -> None:
    """Withdrawn before, or released after: never left to run without an object."""
    for number in range(ROUNDS):
        gpr = stage.filed(f"train-{number}")
        stage.agent.sync(at=stage.now)

        _, answers = at_once(
            lambda: tick(now=NOW),
            lambda number=number: cluster_requests_take(cluster=stage.cluster, requests=[gone(f"train-{number}")], now=NOW),
        )

        (answer,) = answers
        if answer.verdict == ClusterRequestVerdict.LATER:
            (answer,) = stage.claims(gone(f"train-{number}"))
        assert answer.verdict == ClusterRequestVerdict.TAKEN
        gpr.refresh_from_db()
        assert gpr.state in {GprState.CANCELED, GprState.EXITING}
        if gpr.state == GprState.EXITING:
            stage.leave(gpr)
        assert gpr.state in ENDED


def test_claims_and_syncs_and_ticks_at_once_wait_for_each_other_in_no_circle(stage: ClusterRequestStage) -> None:
    """Filing holds the plan and wants the cluster's generation; a tick holds nodes and wants the same."""
    stop, failed = threading.Event(), list[str]()

    def until_stopped(work: Callable[[], object]) -> None:
        with closing(connection):
            while not stop.is_set():
                try:
                    work()
                except EgsError:
                    continue
                except Exception as error:
                    failed.append(repr(error))
                    return

    others = [
        threading.Thread(target=until_stopped, args=(lambda: stage.agent.sync(at=NOW),)),
        threading.Thread(target=until_stopped, args=(lambda: tick(now=NOW),)),
    ]
    for thread in others:
        thread.start()
    for number in range(2 * ROUNDS):
        take(stage, f"train-{number}")
        take(stage, f"train-{number}", generation=2, priority=120)
        cluster_requests_take(cluster=stage.cluster, requests=[gone(f"train-{number}")], now=NOW)
    stop.set()
    for thread in others:
        thread.join()

    assert failed == []
    assert not Gpr.objects.exclude(state__in=[*ENDED, GprState.EXITING]).exists()

"""Many who file at once share one plan, and each gets what he would have got alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, connections, transaction

from accounts.models import User
from accounts.services import create_once
from core.errors import CanNeverStart, NotAllowed
from gpr.allocation.stored_plan import replan
from gpr.models import Gpr, GprState, Promise
from gpr.requests import planning
from gpr.requests import services as requests
from gpr.requests.services import CREATION_ROUTE, gpr_submit
from inventory.models import Cluster
from journal.models import Event
from slices.models import Slice
from tests.builders import NOW, make_cluster, make_slice, make_user, spec
from tests.e2e.processes import START_S, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster(nodes=2)


@pytest.fixture
def user() -> User:
    return make_user(is_admin=True)


class Crowd:
    """The first is stopped as it plans, until all others wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan_count = 0
        self._is_in, self._may_go = threading.Event(), threading.Event()
        monkeypatch.setattr(planning, "replan", self._planned)

    def _planned(self, **given: Any) -> Any:
        self.plan_count += 1
        self._is_in.set()
        assert self._may_go.wait(START_S)
        return replan(**given)

    def file(self, *works: Callable[[], object]) -> list[Future[Any]]:
        with ThreadPoolExecutor(len(works)) as pool:
            filed = [pool.submit(_closing, works[0])]
            assert self._is_in.wait(START_S)
            filed += [pool.submit(_closing, work) for work in works[1:]]
            wait_for("the others", lambda: len(requests._submits._waiting) == len(works) - 1, within_s=START_S)
            self._may_go.set()
        return filed


def _closing(work: Callable[[], object]) -> object:
    try:
        return work()
    finally:
        connections.close_all()


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    return Crowd(monkeypatch)


def filing(slice_: Slice, user: User, **asked: Any) -> Callable[[], Gpr]:
    return lambda: gpr_submit(actor=user, spec=spec(slice_, **asked), now=NOW)


def test_twelve_at_once_are_promised_what_twelve_in_a_row_are_and_planned_twice(crowd: Crowd, cluster: Cluster, user: User) -> None:
    slices = [make_slice(cluster, name=f"s{number}") for number in range(12)]

    gprs = [filed.result() for filed in crowd.file(*(filing(slice_, user, nodes=1) for slice_ in slices))]

    assert crowd.plan_count == 2
    assert {gpr.state for gpr in gprs} == {GprState.QUEUED}
    assert all(gpr.planned_start_at is not None for gpr in gprs)
    length = timedelta(seconds=gprs[0].duration_s)
    turns = sorted((start - NOW) // length for start in Promise.objects.values_list("promised_start_at", flat=True))
    assert turns == [turn for turn in range(6) for _ in range(2)]
    assert Event.objects.filter(kind="gpr.created").count() == 12


def test_who_may_not_file_is_told_so_while_the_others_wait(crowd: Crowd, cluster: Cluster, user: User) -> None:
    slices = [make_slice(cluster, name=f"s{number}") for number in range(3)]
    outsider = make_user("outsider")

    def refused_then_filed() -> Gpr:
        with pytest.raises(NotAllowed):
            gpr_submit(actor=outsider, spec=spec(slices[2]), now=NOW)
        assert crowd.plan_count == 1
        return filing(slices[2], user)()

    filed = crowd.file(*(filing(slice_, user) for slice_ in slices[:2]), refused_then_filed)

    assert {each.result().slice for each in filed} == set(slices)
    assert Gpr.objects.count() == 3


def test_what_can_never_start_is_refused_and_the_others_are_filed(crowd: Crowd, cluster: Cluster, user: User) -> None:
    slices = [make_slice(cluster, name=f"s{number}") for number in range(4)]

    filed = crowd.file(*(filing(slice_, user, nodes=3 if slice_ is slices[2] else 1) for slice_ in slices))

    assert crowd.plan_count == 3  # the first, the others, the others without it
    with pytest.raises(CanNeverStart):
        filed[2].result()
    assert {each.result().slice for each in filed if each is not filed[2]} == {slices[0], slices[1], slices[3]}
    assert Gpr.objects.count() == 3
    assert not Event.objects.filter(kind="gpr.created", slice_id=slices[2].pk).exists()


def test_one_key_files_once_however_many_bring_it_at_once(crowd: Crowd, cluster: Cluster, user: User) -> None:
    slice_, *slices = [make_slice(cluster, name=f"s{number}") for number in range(4)]

    def once() -> tuple[UUID, bool]:
        def create(remember: Callable[[UUID], None]) -> UUID:
            return gpr_submit(actor=user, spec=spec(slice_), now=NOW, on_created=remember).pk

        return create_once(user=user, route=CREATION_ROUTE, key="k", digest="d", now=NOW, create=create)

    filed = crowd.file(*[once] * 5, *(filing(other, user) for other in slices))

    found = [each.result() for each in filed[:5]]
    assert {pk for pk, _ in found} == set(Gpr.objects.filter(slice=slice_).values_list("pk", flat=True))
    assert sorted(is_old for _, is_old in found) == [False, True, True, True, True]
    # Whoever brings it again spoils nothing for the others.
    assert {each.result().slice for each in filed[5:]} == set(slices)
    assert Gpr.objects.count() == Event.objects.filter(kind="gpr.created").count() == 4
    assert crowd.plan_count == 2


def test_where_the_database_does_not_say_what_became_of_a_commit_nothing_is_filed_twice(
    crowd: Crowd, cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = [make_slice(cluster, name=f"s{number}") for number in range(4)]
    monkeypatch.setattr(transaction, "Atomic", _LostAnswer)

    filed = crowd.file(*(filing(slice_, user) for slice_ in slices))

    assert {type(each.exception()) for each in filed[1:]} == {OperationalError}
    assert Gpr.objects.count() == 4


class _LostAnswer(transaction.Atomic):
    """Of the commit of a batch."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        is_outermost = kind is None and not connection.savepoint_ids and Gpr.objects.count() == 4
        super().__exit__(kind, error, trace)
        if is_outermost:
            raise OperationalError("server closed the connection unexpectedly")

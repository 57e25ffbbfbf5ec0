"""People who file at once get what they would have got one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import pytest
from django.db import connections

from accounts.idempotency import create_once, in_one
from accounts.models import User
from gpr.models import Gpr, GprState, Promise
from gpr.requests.services import CREATION_ROUTE, gpr_submit
from inventory.models import Cluster
from journal.models import Event
from slices.models import Slice
from tests.builders import NOW, make_cluster, make_slice, make_user, spec

Answer = TypeVar("Answer")
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster(nodes=2)


@pytest.fixture
def user() -> User:
    return make_user(is_admin=True)


def at_once(works: Sequence[Callable[[], Answer]]) -> list[Answer]:
    def closing(work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(closing, works))


def filing(slice_: Slice, user: User) -> Callable[[], Gpr]:
    return lambda: gpr_submit(actor=user, spec=spec(slice_, nodes=1), now=NOW)


def test_twelve_at_once_are_promised_what_twelve_in_a_row_are(cluster: Cluster, user: User) -> None:
    slices = [make_slice(cluster, name=f"s{number}") for number in range(12)]

    gprs = at_once([filing(slice_, user) for slice_ in slices])

    assert {gpr.state for gpr in gprs} == {GprState.QUEUED}
    assert all(gpr.planned_start_at is not None for gpr in gprs)
    length = timedelta(seconds=gprs[0].duration_s)
    turns = sorted((start - NOW) // length for start in Promise.objects.values_list("promised_start_at", flat=True))
    assert turns == [turn for turn in range(6) for _ in range(2)]
    assert Event.objects.filter(kind="gpr.created").count() == 12


def test_one_key_files_once_however_many_bring_it_at_once(cluster: Cluster, user: User) -> None:
    slice_, *slices = [make_slice(cluster, name=f"s{number}") for number in range(4)]

    def once() -> tuple[UUID, bool]:
        create = in_one(lambda: filing(slice_, user)().pk)
        return create_once(user=user, route=CREATION_ROUTE, key="k", digest="d", now=NOW, create=create)

    def other(slice_: Slice) -> Callable[[], tuple[UUID, bool]]:
        return lambda: (filing(slice_, user)().pk, False)

    found = at_once([*[once] * 5, *map(other, slices)])[:5]

    assert {pk for pk, _ in found} == set(Gpr.objects.filter(slice=slice_).values_list("pk", flat=True))
    assert sorted(is_old for _, is_old in found) == [False, True, True, True, True]
    assert Gpr.objects.count() == Event.objects.filter(kind="gpr.created").count() == 4

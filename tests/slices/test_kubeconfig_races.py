"""Two who do something with one kubeconfig at once, on a database that really lets them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest
from django.db import connection

from accounts.models import User
from core.errors import Conflict, IllegalTransition
from inventory.models import Cluster
from journal.models import Event
from slices.kubeconfigs.services import LIVE_MOST, kubeconfig_read, kubeconfig_revoke
from slices.models import Kubeconfig, KubeconfigState, Slice
from tests.builders import NOW, make_cluster, make_slice, make_user
from tests.slices.kubeconfigs import SECRET, answer, asked, made, ready_namespace

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]
ROUNDS = 10


def at_once(*works: Callable[[], object]) -> list[object]:
    """Returns what each gave: None for those that were refused."""
    barrier = Barrier(len(works))

    def one(work: Callable[[], object]) -> object:
        with closing(connection):
            barrier.wait()
            try:
                return work() or True
            except (Conflict, IllegalTransition):
                return None

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def slice_(cluster: Cluster, owner: User) -> Slice:
    slice_ = make_slice(cluster, owner=owner)
    ready_namespace(slice_, cluster, at=NOW)
    return slice_


def test_two_readers_get_one_secret(slice_: Slice, cluster: Cluster, owner: User) -> None:
    for _ in range(ROUNDS):
        row = made(slice_, cluster, owner, at=NOW)

        texts = at_once(*[lambda row=row: kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)] * 2)

        assert sum(SECRET in str(text) for text in texts) == 1
        assert Event.objects.filter(kind="slice.kubeconfig_read", data__kubeconfig=str(row.pk)).count() == 1
        kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW)


def test_one_that_is_revoked_while_its_agent_answers_is_revoked(slice_: Slice, cluster: Cluster, owner: User) -> None:
    for _ in range(ROUNDS):
        row = asked(slice_, cluster, owner, at=NOW)

        at_once(lambda row=row: kubeconfig_revoke(kubeconfig=row, actor=owner, now=NOW), lambda row=row: answer(row, at=NOW))

        row = Kubeconfig.objects.get(pk=row.pk)
        assert (row.state, row.token) == (KubeconfigState.REVOKED, "")


def test_nobody_gets_more_than_the_limit_by_asking_twice_at_once(slice_: Slice, cluster: Cluster, owner: User) -> None:
    for _ in range(LIVE_MOST - 1):
        asked(slice_, cluster, owner, at=NOW)

    given = at_once(*[lambda: asked(slice_, cluster, owner, at=NOW)] * 3)

    assert sum(one is not None for one in given) == 1

"""Two administrators who give at once, on a database that really lets them: a sum is counted by one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest
from django.db import connection
from django.db.models import Sum

from core.errors import InvalidInput
from slices.models import Project, Quota, Slice
from slices.quotas.services import quota_change, quota_create
from tests.builders import NOW, SHAPE, make_cluster, make_project, make_slice, make_user

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


def at_once(*works: Callable[[], object]) -> list[bool]:
    barrier = Barrier(len(works))

    def one(work: Callable[[], object]) -> bool:
        with closing(connection):
            barrier.wait()
            try:
                work()
            except InvalidInput:
                return False
            return True

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


def give(owner: Project | Slice, guaranteed: int) -> Quota:
    return quota_create(owner=owner, shape=SHAPE, change={"guaranteed_gpus": guaranteed}, actor=None, now=NOW)


def guaranteed(owners: Sequence[Project] | Sequence[Slice]) -> int:
    of = "project__in" if isinstance(owners[0], Project) else "slice__in"
    return int(Quota.objects.filter(**{of: owners}).aggregate(n=Sum("guaranteed_gpus"))["n"] or 0)


def test_projects_are_never_given_more_than_there_is() -> None:
    make_cluster(nodes=4, gpus=10)
    projects = [make_project() for _ in range(4)]

    done = at_once(*(lambda project=project: give(project, 20) for project in projects))

    assert sum(done) == 2
    assert guaranteed(projects) == 40


def test_workspaces_are_never_given_more_than_their_project_has() -> None:
    make_cluster(nodes=4, gpus=10)
    project = make_project()
    give(project, 20)
    slices = [make_slice(project=project) for _ in range(4)]

    done = at_once(*(lambda slice_=slice_: give(slice_, 10) for slice_ in slices))

    assert sum(done) == 2
    assert guaranteed(slices) == 20


def test_a_project_does_not_lose_what_its_workspace_gets_at_the_same_moment() -> None:
    make_cluster(nodes=4, gpus=10)
    admin = make_user(is_admin=True)
    for _ in range(5):
        project = make_project()
        quota = give(project, 8)
        slice_ = make_slice(project=project)

        done = at_once(
            lambda slice_=slice_: give(slice_, 8),
            lambda quota=quota: quota_change(quota=quota, change={"guaranteed_gpus": 0}, actor=admin, now=NOW),
        )

        assert sum(done) == 1
        quota.refresh_from_db(fields=["guaranteed_gpus"])
        assert quota.guaranteed_gpus == guaranteed([slice_]) == (8 if done[0] else 0)

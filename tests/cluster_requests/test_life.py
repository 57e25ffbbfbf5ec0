"""The hub tells agents of the lives of all GPRs, for people who look at the cluster."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpr.cluster_requests import life_marks
from gpr.cluster_requests.life_marks import _held, life_marks_of
from gpr.models import Gpr
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import gpr_release
from gpr.requests.services import gpr_submit
from inventory.models import Cluster
from protocol.tenancy.life_marks import LIFE_TOLD_S, LifeMark
from slices.models import Slice
from tests.builders import NOW, nodes_of, spec
from tests.cluster_requests.stage import ClusterRequestStage, neighbor, other_cluster
from tests.inventory.agent import Agent

pytestmark = pytest.mark.django_db


def told(stage: ClusterRequestStage, agent: Agent | None = None) -> tuple[LifeMark, ...]:
    life = (agent or stage.agent).sync(at=stage.now, have_life="").life
    assert life is not None
    return life


def words(stage: ClusterRequestStage, agent: Agent | None = None) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(mark.state, mark.percent, mark.nodes) for mark in told(stage, agent)]


def second_cluster_of(slice_: Slice) -> tuple[Cluster, Agent]:
    cluster, agent = other_cluster()
    slice_.clusters.add(cluster)
    return cluster, agent


def test_each_mark_of_one_that_was_filed_on_the_pages_is_told_with_the_nodes_it_had(stage: ClusterRequestStage) -> None:
    gpr = stage.submit(name="train", duration_s=600)
    stage.open(gpr)
    for _ in range(3):
        stage.after(150)
        stage.tick()
    gpr_release(gpr=Gpr.objects.get(pk=gpr.pk), actor=stage.owner, now=stage.now)
    stage.leave(gpr)

    marks = told(stage)

    node = (f"{stage.cluster.name}-n0",)
    assert [(mark.state, mark.percent, mark.nodes) for mark in marks] == [
        ("QUEUED", 0, ()),
        ("PROVISIONING", 0, node),
        ("ACTIVE", 0, node),
        *(("ACTIVE", percent, node) for percent in (25, 50, 75)),
        ("EXITING", 0, node),
        ("RELEASED", 0, node),
    ]
    assert {(mark.gpr_id, mark.gpr_name, mark.slice) for mark in marks} == {(str(gpr.pk), "train", str(stage.slice.pk))}
    assert [mark.at_s - NOW.timestamp() for mark in marks] == [0, 0, 0, 150, 300, 450, 450, 450]
    assert "50 % of the time of train has passed." in {mark.message for mark in marks}


def test_a_mark_is_the_same_whenever_it_is_told_and_not_told_for_ever(stage: ClusterRequestStage) -> None:
    stage.submit(name="train")
    (first,) = told(stage)

    stage.after(LIFE_TOLD_S - 1)
    assert told(stage) == (first,)
    stage.after(2)
    assert told(stage) == ()


def test_what_waits_is_told_in_each_cluster_that_it_allows_and_its_run_where_it_runs(stage: ClusterRequestStage) -> None:
    _, agent = second_cluster_of(stage.slice)
    anywhere = stage.submit(name="anywhere", priority=150)
    here = stage.submit(name="here", clusters=(stage.cluster,))
    assert {mark.gpr_name for mark in told(stage)} == {"anywhere", "here"}
    assert {mark.gpr_name for mark in told(stage, agent)} == {"anywhere"}

    gpr_cancel(gpr=Gpr.objects.get(pk=here.pk), actor=stage.owner, now=stage.now)
    stage.open(anywhere)

    assert words(stage, agent) == [("QUEUED", 0, ())]
    assert {mark.state for mark in told(stage)} == {"QUEUED", "CANCELED", "PROVISIONING", "ACTIVE"}


def test_a_cluster_hears_nothing_of_workspaces_that_are_not_in_it(stage: ClusterRequestStage) -> None:
    _, agent = other_cluster()
    stage.submit(name="train")
    theirs, owner = neighbor(stage)
    gpr_submit(actor=owner, spec=spec(theirs, name="song"), now=stage.now)

    assert told(stage, agent) == ()
    assert {(mark.gpr_name, mark.slice) for mark in told(stage)} == {("train", str(stage.slice.pk)), ("song", str(theirs.pk))}


def test_a_node_that_was_replaced_is_told_nothing_of_the_end(stage: ClusterRequestStage) -> None:
    gpr = stage.submit(name="train")
    stage.open(gpr)
    stage.after(60)
    spare = gpr.reservations.get()
    spare.pk, spare.replaces_id, spare.joined_at, spare.epoch = None, spare.pk, stage.now, spare.epoch + 1
    spare.node = nodes_of(stage.cluster)[1]
    spare.starts_at = stage.now
    spare.save(force_insert=True)
    stage.after(60)

    gpr_release(gpr=Gpr.objects.get(pk=gpr.pk), actor=stage.owner, now=stage.now)

    assert [mark.nodes for mark in told(stage)][-2:] == [(f"{stage.cluster.name}-n0",), (f"{stage.cluster.name}-n1",)]
    assert told(stage)[-1].at_s == (NOW + timedelta(seconds=120)).timestamp()


def test_telling_many_marks_of_many_takes_no_more_queries_than_of_one(stage: ClusterRequestStage) -> None:
    stage.open(stage.submit(name="first"))
    with CaptureQueriesContext(connection) as of_one:
        assert len(life_marks_of(stage.cluster.pk, now=stage.now)) == 3

    theirs, owner = neighbor(stage)
    stage.open(gpr_submit(actor=owner, spec=spec(theirs, name="second"), now=stage.now))
    for number in range(10):
        stage.submit(name=f"waits-{number}")
    with CaptureQueriesContext(connection) as of_many:
        assert len(life_marks_of(stage.cluster.pk, now=stage.now)) == 16

    assert len(of_many) == len(of_one) == 4


def run_anew(gpr: Gpr, run: int, *, node: int, at: datetime) -> None:
    """The nodes of another run."""
    made = gpr.reservations.order_by("run").last()
    assert made is not None
    made.pk, made.run, made.epoch, made.starts_at = None, run, made.epoch + 10, at
    made.ends_at, made.node = at + timedelta(days=1), nodes_of(made.cluster)[node]
    made.save(force_insert=True)


def test_of_runs_that_were_over_before_the_earliest_mark_nothing_is_read(stage: ClusterRequestStage) -> None:
    gpr = stage.submit(name="train", duration_s=24 * 3600)
    stage.open(gpr)
    run_anew(gpr, 2, node=1, at=stage.now + timedelta(seconds=60))
    assert {mark.nodes for mark in told(stage)} == {(), (f"{stage.cluster.name}-n0",)}
    stage.after(120 + LIFE_TOLD_S)

    gpr_release(gpr=Gpr.objects.get(pk=gpr.pk), actor=stage.owner, now=stage.now)

    assert [mark.nodes for mark in told(stage)] == [(f"{stage.cluster.name}-n1",)]
    (held,) = _held(stage.cluster.pk, {gpr.pk}, stage.now).values()
    assert [row.run for row in held] == [2]


def test_a_box_of_very_many_nodes_is_told_on_so_many_of_them(stage: ClusterRequestStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_marks, "LIFE_NODES_MAX", 1)
    stage.open(stage.submit(name="train", nodes=2))

    assert [len(mark.nodes) for mark in told(stage)] == [0, 1, 1]

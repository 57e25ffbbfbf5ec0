"""I5 says that a node's epoch only rises. I16 says that a cluster's generation only rises, and with everything that its agent is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from gpr.models import Gpr
from inventory.models import Cluster, Node, Reservation
from inventory.services.reservations import (
    BoxWindow,
    reservation_force_release,
    reservation_want_absent,
    reservations_set_namespaces,
    reservations_set_windows,
    reservations_want_absent,
    spare_join,
)
from inventory.services.sync import desired_set
from protocol.agents.listings import set_digest
from protocol.assignments import Phase
from slices.namespaces.services import namespace_bind
from tests.builders import HOUR, NOW, agent_says, generation_of, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.promises.database.books import is_refused, raw

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.mark.parametrize(("old", "new", "refused"), [(5, 4, True), (5, 0, True), (5, -1, True), (5, 5, False), (5, 6, False)])
def test_a_nodes_epoch_never_falls(old: int, new: int, refused: bool) -> None:
    (node,) = nodes_of(make_cluster(nodes=1))
    Node.objects.update(epoch=old)

    assert is_refused(lambda: Node.objects.filter(pk=node.pk).update(epoch=new)) == refused
    assert is_refused(lambda: raw(f"UPDATE inventory_node SET epoch = {new}")) == refused  # noqa: S608


@pytest.mark.parametrize(("old", "new", "refused"), [(5, 4, True), (5, 0, True), (5, -1, True), (5, 5, False), (5, 6, False)])
def test_a_clusters_generation_never_falls(old: int, new: int, refused: bool) -> None:
    cluster = make_cluster()
    Cluster.objects.update(generation=old)

    assert is_refused(lambda: Cluster.objects.filter(pk=cluster.pk).update(generation=new)) == refused
    assert is_refused(lambda: raw(f"UPDATE inventory_cluster SET generation = {new}")) == refused  # noqa: S608


def test_a_stale_copy_of_a_cluster_cannot_turn_its_generation_back() -> None:
    stale = make_cluster()
    Cluster.objects.update(generation=5)

    assert is_refused(stale.save)


def test_each_hold_of_a_node_has_a_higher_epoch() -> None:
    cluster = make_cluster(nodes=1, gpus=4)
    (node,) = nodes_of(cluster)
    gprs = [make_gpr(make_slice(cluster)) for _ in range(3)]

    epochs = [hold(gpr, node, gpus_per_node=1)[0].epoch for gpr in gprs]

    assert epochs == [1, 2, 3]
    node.refresh_from_db()
    assert node.epoch == 3


def test_a_forced_release_raises_the_epoch_beyond_the_one_that_the_agent_knows() -> None:
    cluster = make_cluster(nodes=1)
    (node,) = nodes_of(cluster)
    (reservation,) = hold(make_gpr(make_slice(cluster)), node)

    reservation_force_release(reservation=reservation, actor=make_user(is_admin=True), why="it burnt", now=NOW)

    node.refresh_from_db()
    assert node.epoch == reservation.epoch + 1


# -- I16 -----------------------------------------------------------------------------------------------------------------

Change = Callable[[Gpr, Reservation], object]
TELLING: dict[str, Change] = {
    "hold": lambda gpr, row: hold(make_gpr(make_slice(row.cluster)), nodes_of(row.cluster)[1]),
    "want absent": lambda gpr, row: reservations_want_absent(gpr_ids=[gpr.pk]),
    "want one node absent": lambda gpr, row: reservation_want_absent(reservation=row, ends_at=NOW + HOUR),
    "spare joins": lambda gpr, row: spare_join(spare=gpr.reservations.get(replaces=row), ends_at=NOW + HOUR, now=NOW),
    "set window": lambda gpr, row: reservations_set_windows([BoxWindow(gpr.pk, NOW + HOUR, NOW + 2 * HOUR)]),
    "release": lambda gpr, row: agent_says(row, Phase.RELEASED, now=NOW),
    "forced release": lambda gpr, row: reservation_force_release(reservation=row, actor=make_user(is_admin=True), why="it burnt", now=NOW),
    "set namespaces": lambda gpr, row: reservations_set_namespaces(slice_id=gpr.slice_id, cluster_id=row.cluster_id, namespaces=["team"]),
    "bind namespace": lambda gpr, row: namespace_bind(slice_=gpr.slice, cluster=row.cluster, name="team", actor=None, now=NOW),
}
SILENT: dict[str, Change] = {
    "want absent again": lambda gpr, row: reservations_want_absent(gpr_ids=[gpr.pk]),
    "observe": lambda gpr, row: agent_says(row, Phase.EXITING, now=NOW),
    "namespaces of a slice that holds nothing": lambda gpr, row: reservations_set_namespaces(
        slice_id=make_slice(row.cluster).pk, cluster_id=row.cluster_id, namespaces=["team"]
    ),
}


def _held() -> tuple[Cluster, Gpr, Reservation]:
    cluster = make_cluster(nodes=3)
    gpr = make_gpr(make_slice(cluster))
    (row,) = hold(gpr, nodes_of(cluster)[0])
    return cluster, gpr, row


@pytest.mark.parametrize("change", TELLING)
def test_the_generation_rises_with_everything_that_the_agent_is_told(change: str) -> None:
    cluster, gpr, row = _held()
    hold(gpr, nodes_of(cluster)[2], replaces=row)
    other = make_cluster(nodes=1)
    before, told = generation_of(cluster), set_digest(desired_set(cluster_id=cluster.pk, now=NOW))

    TELLING[change](gpr, row)

    assert set_digest(desired_set(cluster_id=cluster.pk, now=NOW)) != told, "the agent is told nothing new: the test is at fault"
    assert generation_of(cluster) > before
    assert generation_of(other) == 0


@pytest.mark.parametrize("change", SILENT)
def test_the_generation_rests_while_the_agent_is_told_nothing_new(change: str) -> None:
    cluster, gpr, row = _held()
    reservations_want_absent(gpr_ids=[gpr.pk])
    before, told = generation_of(cluster), set_digest(desired_set(cluster_id=cluster.pk, now=NOW))

    SILENT[change](gpr, row)

    assert set_digest(desired_set(cluster_id=cluster.pk, now=NOW)) == told
    assert generation_of(cluster) == before


def test_a_hold_over_several_clusters_raises_each_generation() -> None:
    one, two = make_cluster(nodes=1), make_cluster(nodes=1)

    hold(make_gpr(make_slice(one, two)), *nodes_of(one), *nodes_of(two))

    assert (generation_of(one), generation_of(two)) == (1, 1)


def test_the_books_of_a_release_say_when_it_was() -> None:
    cluster, _, row = _held()
    later = NOW + timedelta(minutes=7)

    agent_says(row, Phase.RELEASED, now=later)

    row.refresh_from_db()
    assert row.ends_at == row.released_at == later
    assert set(row.gpus.values_list("ends_at", "state")) == {(later, "RELEASED")}
    assert desired_set(cluster_id=cluster.pk, now=NOW) == ()

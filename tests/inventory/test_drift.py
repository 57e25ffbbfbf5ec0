"""Administrators read of foreign changes in a cluster, and say whether the agent repairs them."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from inventory.models import Cluster, Node
from inventory.services.clusters import cluster_set_drain, cluster_set_repairs
from journal.models import Event, Severity
from protocol.agents.sync import SYNC_PATH, SyncRequest
from protocol.assignments import Drain
from protocol.nodes.drift import DRIFTS_MAX, Drift
from tests.builders import NOW, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.inventory.agent import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return nodes_of(cluster)[0]


def drift_of(node: Node, *, is_repaired: bool) -> Drift:
    return Drift(what=f"node {node.name}", detail="The taint was gone.", node=node.name, is_repaired=is_repaired)


@pytest.mark.parametrize(("is_repaired", "outcome"), [(True, "It was repaired."), (False, "It is left as it is.")])
def test_administrators_read_what_was_changed_and_what_became_of_it(
    is_repaired: bool, outcome: str, agent: Agent, cluster: Cluster, node: Node
) -> None:
    agent.sync(drifts=(drift_of(node, is_repaired=is_repaired),))

    event = Event.objects.get(kind="cluster.drift")
    assert event.message == f"Somebody else changed what EGS keeps in c1: node {node.name}. The taint was gone. {outcome}"
    assert (event.severity, event.cluster_id, event.node_id, event.slice_id) == (Severity.WARNING, cluster.pk, node.pk, None)


def test_what_is_not_of_egs_and_works_against_it_is_told_in_other_words(agent: Agent, cluster: Cluster) -> None:
    agent.sync(drifts=(Drift(what="PriorityClass standard", detail="It preempts.", is_foreign=True),))

    event = Event.objects.get(kind="cluster.drift")
    assert event.message == "PriorityClass standard of c1 works against EGS. It preempts."
    assert (event.severity, event.cluster_id) == (Severity.WARNING, cluster.pk)


@pytest.mark.parametrize(("is_repaired", "outcome"), [(True, "They were removed."), (False, "They are left as they are.")])
def test_what_was_added_is_not_told_as_a_change_of_what_egs_keeps(is_repaired: bool, outcome: str, agent: Agent) -> None:
    drift = Drift(what="role bindings in namespace red", detail="1 that EGS does not keep: ci.", is_repaired=is_repaired, is_added=True)

    agent.sync(drifts=(drift,))

    event = Event.objects.get(kind="cluster.drift")
    assert event.message == f"Somebody added role bindings in namespace red of c1. 1 that EGS does not keep: ci. {outcome}"


def test_of_what_is_no_node_of_this_cluster_no_node_is_named(agent: Agent) -> None:
    elsewhere = nodes_of(make_cluster("c2", nodes=1))[0]

    agent.sync(drifts=(drift_of(elsewhere, is_repaired=True), Drift(what="ClusterRole egs-slice-user", detail="It is gone.")))

    assert set(Event.objects.filter(kind="cluster.drift").values_list("node_id", flat=True)) == {None}


def test_an_agent_that_lost_the_answer_and_says_it_again_is_counted_once(agent: Agent, node: Node) -> None:
    drift = drift_of(node, is_repaired=True)
    agent.sync(drifts=(drift,))
    agent.sync(drifts=(drift,), at=NOW + timedelta(seconds=10))
    assert Event.objects.filter(kind="cluster.drift").count() == 1

    agent.sync(drifts=(drift,), at=NOW + timedelta(seconds=70))
    assert Event.objects.filter(kind="cluster.drift").count() == 2


def test_the_agent_is_told_at_once_whether_to_put_things_right(agent: Agent, cluster: Cluster) -> None:
    before = agent.sync()
    assert before.repairs_drift

    cluster_set_repairs(cluster=cluster, repairs_drift=False, actor=make_user(is_admin=True), now=NOW)

    after = agent.sync()
    assert not after.repairs_drift
    assert after.generation > before.generation
    assert Event.objects.get(kind="cluster.repairs_changed").cluster_id == cluster.pk


def test_the_agent_is_told_with_each_box_how_long_its_pods_may_hold_it_beyond_its_end(agent: Agent, cluster: Cluster, node: Node) -> None:
    hold(make_gpr(make_slice(cluster)), node)
    (before,) = agent.sync().assignments or ()
    assert before.drain == Drain(grace_s=30.0, force_after_s=120.0)

    cluster_set_drain(cluster=cluster, grace_s=5, force_after_s=600, actor=make_user(is_admin=True), now=NOW)

    (after,) = agent.sync().assignments or ()
    assert after.drain == Drain(grace_s=5.0, force_after_s=600.0)
    assert "get 600 s to stop" in Event.objects.get(kind="cluster.drain_changed").message


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ([{"what": "r" * 301, "detail": "x"}, {"what": "quota", "detail": "Gone."}, None], ["quota"]),
        ([{"what": "r" * 301, "detail": "x"}, *({"what": f"quota {n:03}", "detail": "Gone."} for n in range(DRIFTS_MAX))], DRIFTS_MAX - 1),
        ("nonsense", []),
    ],
)
def test_one_that_cannot_be_read_costs_no_heartbeat_and_hides_no_other(told: object, known: list[str] | int, agent: Agent) -> None:
    """Names of what people make are as long as they like, and an older agent sends them as they are."""
    agent.sync()
    message = msgspec.to_builtins(SyncRequest(session_epoch=agent.session_epoch, boot_id=agent.boot))

    reply = agent.post(SYNC_PATH, msgspec.json.encode(message | {"drifts": told}))

    assert reply.status == 200
    seen = [event.data["what"] for event in Event.objects.filter(kind="cluster.drift")]
    assert (len(seen) if isinstance(known, int) else seen) == known

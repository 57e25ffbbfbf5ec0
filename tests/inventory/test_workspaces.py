"""Workspaces over EGS Sync: the list that an agent is told, when it is told it, and what it reports."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from gpr.allocation.allocator import tick
from inventory.models import Cluster
from journal.models import Event, Severity
from protocol.agents.sync import SyncReply
from protocol.assignments import Desired
from protocol.tenancy.workspaces import Binding, BindingSeen, BindingState, IssuedToken, Workspace
from slices.kubeconfigs.services import kubeconfig_read
from slices.models import Namespace, Slice, Unbinding
from slices.namespaces.services import namespace_adopt, namespace_bind, namespace_unbind
from slices.policies.services import policy_change, policy_of
from tests.builders import NOW, make_cluster, make_slice, make_user
from tests.inventory.agent import Agent
from tests.slices.kubeconfigs import SECRET, SERVER, asked, ready_namespace

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster("aurora", is_heard=False)


@pytest.fixture
def owner() -> User:
    return make_user("ada")


@pytest.fixture
def slice_(cluster: Cluster, owner: User) -> Slice:
    return make_slice(cluster, name="vision", owner=owner)


def bind(slice_: Slice, cluster: Cluster, name: str = "train") -> Namespace:
    return namespace_bind(slice_=slice_, cluster=cluster, name=name, actor=None, now=NOW)


def seen(slice_: Slice, state: BindingState, name: str = "train", **changes: Any) -> BindingSeen:
    return BindingSeen(**{"slice": str(slice_.pk), "namespace": name, "state": state, **changes})


def told(reply: SyncReply) -> list[Workspace]:
    assert reply.workspaces is not None
    return list(reply.workspaces)


def test_an_agent_is_told_of_the_workspaces_of_its_cluster_alone(agent: Agent, slice_: Slice, cluster: Cluster) -> None:
    bind(slice_, cluster)
    elsewhere = make_cluster()
    bind(make_slice(elsewhere, name="canary"), elsewhere)
    make_slice(cluster, name="without-a-namespace")

    assert told(agent.sync()) == [
        Workspace(id=str(slice_.pk), name="vision", bindings=(Binding(namespace="train"),), pods_max=1000, may_reach_out=False)
    ]


def test_a_list_that_the_agent_has_is_not_sent_again(agent: Agent, slice_: Slice, cluster: Cluster) -> None:
    bind(slice_, cluster)
    first = agent.sync()

    assert agent.sync(have_workspaces=first.workspaces_digest).workspaces is None
    policy_change(policy=policy_of(slice_), terms={"pods_max": 5, "may_reach_out": True}, actor=make_user(is_admin=True), now=NOW)
    again = agent.sync(have_workspaces=first.workspaces_digest)

    assert again.generation > first.generation
    (workspace,) = told(again)
    assert (workspace.pods_max, workspace.may_reach_out) == (5, True)


def test_what_the_agent_finds_is_kept_with_one_event_for_each_change(agent: Agent, slice_: Slice, cluster: Cluster) -> None:
    namespace = bind(slice_, cluster)
    conflict = seen(slice_, BindingState.CONFLICT, detail="There was one before.")

    for report in (conflict, conflict, seen(slice_, BindingState.READY, repaired=("quota",)), seen(slice_, BindingState.READY)):
        agent.sync(bindings=(report,))

    namespace.refresh_from_db()
    assert (namespace.state, namespace.detail) == (BindingState.READY, "")
    events = Event.objects.filter(slice_id=slice_.pk, kind__in=["slice.namespace_state", "slice.namespace_repaired"]).order_by("pk")
    assert [(event.kind, event.severity) for event in events] == [
        ("slice.namespace_state", Severity.WARNING),
        ("slice.namespace_repaired", Severity.INFO),
        ("slice.namespace_state", Severity.INFO),
    ]


def test_an_agent_says_nothing_of_another_cluster_s_namespaces(agent: Agent, slice_: Slice) -> None:
    elsewhere = make_cluster()
    other = make_slice(elsewhere)
    namespace = bind(other, elsewhere)

    for slice_id in (str(other.pk), str(slice_.pk), "no-id"):
        agent.sync(bindings=(BindingSeen(slice=slice_id, namespace="train", state=BindingState.READY),))

    namespace.refresh_from_db()
    assert namespace.state == BindingState.WAITING


def test_one_that_is_given_up_is_told_as_absent_until_the_agent_has_left_it(
    agent: Agent, slice_: Slice, cluster: Cluster, owner: User
) -> None:
    namespace = bind(slice_, cluster)
    namespace_unbind(namespace=namespace, actor=owner, now=NOW)

    (workspace,) = told(agent.sync())
    assert workspace.bindings == (Binding(namespace="train", desired=Desired.ABSENT),)
    agent.sync(bindings=(seen(slice_, BindingState.WAITING, detail="A GPR has nodes."),))
    assert Unbinding.objects.get().detail == "A GPR has nodes."
    assert told(agent.sync(bindings=(seen(slice_, BindingState.UNBOUND),))) == []


def test_one_that_is_bound_again_before_it_was_left_just_stays(agent: Agent, slice_: Slice, cluster: Cluster, owner: User) -> None:
    namespace_unbind(namespace=bind(slice_, cluster), actor=owner, now=NOW)
    again = bind(slice_, cluster)

    (workspace,) = told(agent.sync(bindings=(seen(slice_, BindingState.UNBOUND),)))

    assert workspace.bindings == (Binding(namespace="train"),)
    again.refresh_from_db()
    assert again.state == BindingState.WAITING


def test_another_workspace_may_bind_what_one_gave_up_and_both_are_told(agent: Agent, slice_: Slice, cluster: Cluster, owner: User) -> None:
    namespace_unbind(namespace=bind(slice_, cluster), actor=owner, now=NOW)
    heir = make_slice(cluster, name="heir")
    bind(heir, cluster)

    by_name = {workspace.name: workspace.bindings[0].desired for workspace in told(agent.sync())}

    assert by_name == {"vision": Desired.ABSENT, "heir": Desired.PRESENT}


def test_the_word_of_an_administrator_reaches_the_agent(agent: Agent, slice_: Slice, cluster: Cluster) -> None:
    namespace = bind(slice_, cluster)

    namespace_adopt(namespace=namespace, actor=make_user(is_admin=True), now=NOW)

    (workspace,) = told(agent.sync())
    assert workspace.bindings == (Binding(namespace="train", may_adopt=True),)


def test_a_token_goes_from_the_agent_to_who_asked_and_only_there(agent: Agent, slice_: Slice, cluster: Cluster, owner: User) -> None:
    ready_namespace(slice_, cluster, at=NOW)
    row = asked(slice_, Cluster.objects.get(pk=cluster.pk), owner, at=NOW)
    (account,) = told(agent.sync())[0].accounts
    issued = IssuedToken(account=account.id, token=SECRET, expires_s=NOW.timestamp() + 600, server=SERVER, ca="PEM")

    reply = agent.sync(tokens=(issued,))

    assert told(reply)[0].accounts[0].token_s == 0
    assert SECRET not in str(msgspec.to_builtins(reply))
    row.refresh_from_db()
    assert row.expires_at is not None
    assert row.expires_at.timestamp() == NOW.timestamp() + 600  # as the cluster said, not as was asked
    assert SECRET in kubeconfig_read(kubeconfig=row, actor=owner, now=NOW)
    agent.sync(tokens=(issued,))  # its answer was lost: said again, and not kept
    row.refresh_from_db()
    assert row.token == ""


def test_who_may_not_sign_in_any_more_is_off_the_list_after_the_next_tick(
    agent: Agent, slice_: Slice, cluster: Cluster, owner: User
) -> None:
    ready_namespace(slice_, cluster, at=NOW)
    asked(slice_, Cluster.objects.get(pk=cluster.pk), owner, at=NOW)
    first = agent.sync()
    assert told(first)[0].accounts
    User.objects.filter(pk=owner.pk).update(is_active=False)

    tick(now=NOW)
    again = agent.sync(have_workspaces=first.workspaces_digest, known_generation=first.generation)

    assert told(again)[0].accounts == ()


def test_an_agent_that_has_all_costs_no_look_at_the_workspaces(agent: Agent, slice_: Slice, cluster: Cluster) -> None:
    bind(slice_, cluster)
    first = agent.sync()

    with CaptureQueriesContext(connection) as seen:
        agent.sync(have_workspaces=first.workspaces_digest, known_generation=first.generation)

    assert not [query for query in seen.captured_queries if "slices_namespace" in (query["sql"] or "")]

"""The labels of workspaces' namespaces where EGS is installed: what somebody takes off by hand, the agent puts back with its own rights."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from protocol import cluster_names
from protocol.assignments import Desired, Phase
from protocol.tenancy.workspaces import AccessRole, Binding, BindingState, Workspace
from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S, Cluster
from tests.kube.site import access_as_agent, ended, moved_in
from tests.kube.tenancy.test_tenancy import House, a_workspace
from tests.kube.world import pod
from tests.kube.written import written
from worker_agent.cluster.base import Unavailable

ENFORCE = f"{cluster_names.POD_SECURITY}enforce"


class Tenement(House):
    """Kept by an agent that has its own rights and no more."""

    __slots__ = ()

    def start(self) -> None:
        self.start_at(access_as_agent(self.cluster, key=self.key))

    def label(self, *labels: str) -> None:
        self.cluster.label("namespace", self.namespace, *labels)


@pytest.fixture
def kept(cluster: Cluster) -> Iterator[Tenement]:
    made = Tenement(cluster, a_workspace())
    made.let_in(AccessRole.USER, token_s=0)
    yield made
    made.leave()


HANDS: dict[str, tuple[str, ...]] = {
    "the workspace's off": (f"{cluster_names.SLICE}-",),
    "the workspace's for another's": (f"{cluster_names.SLICE}=33333333-3333-4333-8333-333333333333",),
    "the mark off": (f"{cluster_names.BOUND_TO}-",),
    "Pod Security off": (f"{ENFORCE}-",),
    "the workspace's and Pod Security off": (f"{cluster_names.SLICE}-", f"{ENFORCE}-"),
}


# Quickly, an agent that was started again: tests/agent/tenancy/test_revoking.py, and the namespaces that are unbound below.
STARTED_AGAIN = pytest.param(True, marks=pytest.mark.soak, id="agent started again")


@pytest.mark.parametrize("restarts", [pytest.param(False, id="same agent"), STARTED_AGAIN])
@pytest.mark.parametrize("hand", HANDS)
def test_a_label_that_somebody_changed_is_put_back_and_then_told_as_put_right(hand: str, restarts: bool, kept: Tenement) -> None:
    kept.make()
    before = kept.labels(), kept.everything()

    kept.label(*HANDS[hand])
    if restarts:
        kept.start()
    seen = kept.settle()

    # Without the mark, a new agent gives it as to a namespace of an older one.
    assert seen.repaired == (() if restarts and hand == "the mark off" else ("label",))
    # A new agent writes all of it anew, and the API server may take a moment to know the namespace as a workspace's again.
    wait_for("the namespace is ready", lambda: kept.settle() == kept.seen(BindingState.READY), within_s=SOON_S)
    assert (kept.labels(), kept.everything()) == before
    kept.make()


def test_a_namespace_of_an_older_agent_gets_the_mark_which_is_no_repair(kept: Tenement) -> None:
    kept.make()
    kept.label(f"{cluster_names.BOUND_TO}-")
    kept.start()

    kept.make()

    assert kept.labels()[cluster_names.BOUND_TO] == kept.workspace.id
    assert kept.notes == []


def test_what_the_agent_may_not_put_back_is_never_told_as_put_right_but_with_what_an_administrator_does(kept: Tenement) -> None:
    """A namespace of an older agent has no mark yet."""
    kept.make()
    kept.label(f"{cluster_names.SLICE}-", f"{cluster_names.BOUND_TO}-")

    for _ in range(2):
        refused = kept.settle()
        assert (refused.state, refused.repaired, refused.left) == (BindingState.CONFLICT, (), ())
    command = refused.detail.partition("kubectl ")[2]
    assert f"{cluster_names.SLICE}={kept.workspace.id}" in command
    assert "namespace_repaired" not in {event for event, _ in kept.notes}

    kept.cluster.kubectl(*command.split())
    assert kept.settle() == kept.seen(BindingState.READY, "", "label")  # the mark
    kept.make()


def test_an_adopted_namespace_keeps_its_workspace_when_the_leave_to_adopt_it_is_gone(kept: Tenement) -> None:
    kept.cluster.make_namespace(kept.namespace)
    kept.label(f"{cluster_names.MAY_ADOPT}=true")
    kept.change(bindings=(Binding(namespace=kept.namespace, may_adopt=True),))
    wait_for("the adopted namespace", lambda: kept.settle().state is BindingState.READY, within_s=SOON_S)

    kept.label(f"{cluster_names.MAY_ADOPT}-", f"{cluster_names.SLICE}-")

    assert kept.settle() == kept.seen(BindingState.READY, "", "label")
    assert kept.labels()[cluster_names.SLICE] == kept.workspace.id


@pytest.mark.parametrize("restarts", [False, True], ids=["same agent", "agent started again"])
def test_a_namespace_whose_label_somebody_took_off_is_unbound_with_all_access_to_it(restarts: bool, kept: Tenement) -> None:
    kept.make()
    kept.label(f"{cluster_names.SLICE}-")
    kept.change(bindings=(Binding(namespace=kept.namespace, desired=Desired.ABSENT),), accounts=())
    if restarts:
        kept.start()

    # The API server may take a moment to know the namespace as a workspace's again.
    wait_for("the namespace is unbound", lambda: kept.settle().state is BindingState.UNBOUND, within_s=SOON_S)

    assert list(kept.everything()) == ["NetworkPolicy/egs-slice"]
    assert not {cluster_names.SLICE, cluster_names.BOUND_TO} & kept.labels().keys()


@pytest.mark.parametrize("restarts", [pytest.param(False, id="same agent"), STARTED_AGAIN])
def test_a_namespace_that_lost_both_labels_is_not_told_as_unbound_while_people_may_enter_it(restarts: bool, kept: Tenement) -> None:
    kept.make()
    (account,) = kept.workspace.accounts
    kept.label(f"{cluster_names.SLICE}-", f"{cluster_names.BOUND_TO}-")
    kept.change(bindings=(Binding(namespace=kept.namespace, desired=Desired.ABSENT),), accounts=())
    if restarts:
        kept.start()

    for _ in range(2):
        found = kept.found()
        assert found.bindings[0].state is BindingState.WAITING
        assert account.id in (found.accounts_left or ())
    assert kept.get("rolebinding", cluster_names.account_of(account.id)) is not None

    kept.cluster.kubectl(*found.bindings[0].detail.partition("kubectl ")[2].split())
    wait_for("the namespace is unbound", lambda: kept.settle().state is BindingState.UNBOUND, within_s=SOON_S)

    assert list(kept.everything()) == ["NetworkPolicy/egs-slice"]
    assert account.id not in (kept.found().accounts_left or ())
    assert not {cluster_names.SLICE, cluster_names.BOUND_TO} & kept.labels().keys()


def test_what_was_given_up_the_agent_cannot_take_again(kept: Tenement) -> None:
    kept.make()
    binding = kept.workspace.bindings[0]
    kept.change(bindings=(msgspec.structs.replace(binding, desired=Desired.ABSENT),), accounts=())
    assert kept.settle().state is BindingState.UNBOUND

    kept.change(bindings=(msgspec.structs.replace(binding, may_adopt=True),))
    refused = kept.settle()

    assert (refused.state, f"{cluster_names.MAY_ADOPT}=true" in refused.detail) == (BindingState.CONFLICT, True)
    assert cluster_names.SLICE not in kept.labels()


@pytest.mark.parametrize("is_in_use", [False, True])
def test_where_the_policy_says_to_repair_nothing_the_label_is_put_back_for_an_open_box_alone(is_in_use: bool, kept: Tenement) -> None:
    """Otherwise its pods could be neither let in nor cleared."""
    kept.make()
    kept.repairs = False
    kept.label(f"{cluster_names.SLICE}-")

    seen = kept.settle(in_use=frozenset({kept.workspace.id} if is_in_use else ()))

    assert (seen.repaired, seen.left) == ((("label",), ()) if is_in_use else ((), ("label",)))
    assert (cluster_names.SLICE in kept.labels()) is is_in_use


def test_a_box_ends_though_somebody_took_the_label_of_its_workspace_off_meanwhile(cluster: Cluster) -> None:
    """Without it the agent may not clear its pods."""
    with moved_in(cluster) as site:
        red = site.make_slice("red")
        kept = Tenement(cluster, Workspace(id=red, name=red, bindings=(Binding(namespace=red),)))
        kept.make()
        cluster.apply(written(cluster, pod("train", 8, metadata={"namespace": red})))
        (box,) = site.box(red)
        site.tell(box)
        site.until("the pod runs", lambda: site.running(red))

        kept.label(f"{cluster_names.SLICE}-")
        site.tell(*ended(box))
        site.until("the exit", lambda: site.is_in(Phase.EXITING, box))
        assert kept.settle(in_use=frozenset({red})).repaired == ("label",)

        site.until("the end", lambda: site.is_in(Phase.RELEASED, box))
        kept.leave()


def test_a_namespace_that_could_not_be_made_anew_is_not_told_as_put_right(kept: Tenement, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.make()
    kept.cluster.delete("namespace", kept.namespace, waits=True)
    with monkeypatch.context() as broken:
        broken.setattr(kept.apis[-1], "create", refuse)
        assert kept.settle().repaired == ()

    assert kept.settle() == kept.seen(BindingState.READY, "", "namespace")


def refuse(*_: object, **__: object) -> None:
    raise Unavailable("503")

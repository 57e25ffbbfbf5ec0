"""The agent's side of workspaces that knows no cluster: what it is told, what it tells, and that exits never wait for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from protocol.agents.listings import set_digest
from protocol.agents.registration import Credential
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.assignments import Desired, Phase
from protocol.tenancy.workspaces import BINDINGS_MAX, Account, Binding, BindingSeen, BindingState, IssuedToken, Workspace
from tests.agent.stage import Stage
from worker_agent.clock import SystemClock
from worker_agent.cluster.base import ClusterDriver
from worker_agent.hub.dialog import Call, Dialog, Lane
from worker_agent.hub.requests import SimulatedRequests
from worker_agent.hub.transport import NoAnswer
from worker_agent.hub.workloads import SimulatedWorkloads
from worker_agent.hub.workspaces import SimulatedTenancy, TenancyDriver, TenancyResult, WorkspaceExchange
from worker_agent.log import Log
from worker_agent.process import Process
from worker_agent.telemetry.simulated import SimulatedTelemetry
from worker_agent.telemetry.simulated_pods import SimulatedPods

NOBODY: frozenset[str] = frozenset()
READY = BindingSeen(slice="s1", namespace="ns1", state=BindingState.READY)
ACCOUNT = Account(id="k1", role="user", namespace="ns1", token_s=600)
TOKEN = IssuedToken(account="k1", token="secret", expires_s=1.0)


def workspace(*accounts: Account, desired: str = Desired.PRESENT) -> Workspace:
    return Workspace(id="s1", name="red", bindings=(Binding(namespace="ns1", desired=desired),), accounts=accounts)


def reply(stage: Stage, workspaces: tuple[Workspace, ...] | None) -> SyncReply:
    digest = set_digest(workspaces) if workspaces is not None else stage.core.link.tenancy.workspaces.digest
    return msgspec.structs.replace(stage.reply(), workspaces=workspaces, workspaces_digest=digest)


def tell(stage: Stage, *workspaces: Workspace, is_known: bool = False) -> SyncRequest:
    """Answers one sync with this list and returns what the agent said in it."""
    sent = stage.core.sync_request(0.0)
    stage.core.on_reply(sent, reply(stage, None if is_known else workspaces))
    return sent.request


def exchange(stage: Stage) -> WorkspaceExchange:
    return stage.core.link.tenancy


def test_what_it_finds_is_told_until_the_hub_has_taken_it_and_once() -> None:
    stage = Stage()
    tell(stage, workspace())
    exchange(stage).report(exchange(stage).wanted, TenancyResult(bindings=(READY,)))

    lost = stage.core.sync_request(0.0).request
    told = tell(stage, is_known=True)

    assert lost.bindings == told.bindings == (READY,)
    assert tell(stage, is_known=True).bindings == ()
    assert not exchange(stage).has_news


def test_of_many_namespaces_as_many_are_told_at_once_as_the_hub_answers_in_time() -> None:
    stage = Stage()
    many = tuple(msgspec.structs.replace(READY, namespace=f"train-{number}") for number in range(BINDINGS_MAX + 5))
    tell(stage, workspace())
    exchange(stage).report(exchange(stage).wanted, TenancyResult(bindings=many))

    told = [tell(stage, is_known=True).bindings for _ in range(3)]

    assert [len(each) for each in told] == [BINDINGS_MAX, 5, 0]
    assert {*told[0], *told[1]} == set(many)


def test_which_accounts_are_left_is_told_of_each_list_once_it_was_worked_on() -> None:
    stage = Stage()
    tell(stage, workspace(ACCOUNT))
    exchange(stage).report(exchange(stage).wanted, TenancyResult(bindings=(READY,)))
    assert tell(stage, is_known=True).accounts_left is None

    for left in (("k0",), ()):
        exchange(stage).report(exchange(stage).wanted, TenancyResult(left, (READY,)))
        assert exchange(stage).has_news
        said = tell(stage, is_known=True)
        assert (said.accounts_left, said.have_workspaces) == (left, exchange(stage).workspaces.digest)
        assert not exchange(stage).has_news

    worked_on = exchange(stage).wanted
    tell(stage, workspace())
    exchange(stage).report(worked_on, TenancyResult(()))
    assert tell(stage, is_known=True).accounts_left is None


def test_a_list_that_came_anew_is_answered_anew() -> None:
    """The hub may be an older copy of itself."""
    stage = Stage()
    tell(stage, workspace())
    exchange(stage).report(exchange(stage).wanted, TenancyResult(bindings=(READY,)))
    tell(stage, is_known=True)

    tell(stage, workspace(ACCOUNT))

    assert stage.core.sync_request(0.0).request.bindings == (READY,)


def test_what_was_found_of_another_wish_is_no_answer_to_a_new_one() -> None:
    stage = Stage()
    tell(stage, workspace(desired=Desired.ABSENT))
    old = exchange(stage).wanted
    exchange(stage).report(old, TenancyResult(bindings=(msgspec.structs.replace(READY, state=BindingState.UNBOUND),)))

    tell(stage, workspace())
    assert stage.core.sync_request(0.0).request.bindings == ()
    exchange(stage).report(old, TenancyResult(bindings=(msgspec.structs.replace(READY, state=BindingState.UNBOUND),)))

    assert stage.core.sync_request(0.0).request.bindings == ()


def test_a_token_is_forgotten_when_the_hub_waits_for_it_no_more() -> None:
    stage = Stage()
    tell(stage, workspace(ACCOUNT))
    exchange(stage).report(exchange(stage).wanted, TenancyResult(tokens=(TOKEN,)))
    assert exchange(stage).has_token == {"k1"}

    assert tell(stage, workspace(msgspec.structs.replace(ACCOUNT, token_s=0))).tokens == (TOKEN,)

    assert exchange(stage).has_token == NOBODY
    assert stage.core.sync_request(0.0).request.tokens == ()


def test_no_secret_is_in_what_the_agent_writes_down() -> None:
    stage = Stage()
    tell(stage, workspace(ACCOUNT))
    exchange(stage).report(exchange(stage).wanted, TenancyResult(tokens=(TOKEN,)))

    stage.core.reconcile()

    doc = stage.cluster.load_state()
    assert doc is not None
    assert b"secret" not in doc.body
    assert "secret" not in repr(exchange(stage).tokens_untold)


def test_the_list_of_a_hub_that_was_restored_from_an_older_copy_does_not_count() -> None:
    stage = Stage()
    tell(stage, workspace(ACCOUNT))
    stage.tell(generation=5)
    stage.generation = 3

    tell(stage)

    assert exchange(stage).wanted == (workspace(ACCOUNT),)


def test_an_agent_with_news_does_not_wait_for_the_parked_sync() -> None:
    stage = Stage()
    dialog = Dialog(core=stage.core, cluster_uid="c", join_token=str, clock=stage.clock, rng=random.Random(1), note=lambda *_: None)
    tell(stage, workspace())
    stage.core.take_credential(Credential(agent_id="a", cluster="c", credential="x", cred_gen=1, expires_s=2e9))
    first = dialog.next_call(Lane.PUSH)
    assert isinstance(first, Call)
    dialog.on_answer(Lane.PUSH, first, 200, msgspec.json.encode(reply(stage, None)))
    assert not isinstance(dialog.next_call(Lane.PUSH), Call)

    exchange(stage).report(exchange(stage).wanted, TenancyResult(bindings=(READY,)))

    call = dialog.next_call(Lane.PUSH)
    assert isinstance(call, Call)
    assert msgspec.json.decode(call.body, type=SyncRequest).bindings == (READY,)


def test_workspaces_with_something_on_a_node_are_in_use_by_id_and_by_namespace() -> None:
    stage = Stage()
    stage.tell(stage.assignment(0))
    assert stage.core.in_use() == NOBODY

    stage.run(10, until=lambda: any(seen.phase is Phase.ENTERING for seen in stage.core.observed))

    assert stage.core.in_use() == {"red", "red-ns"}


def test_in_a_simulated_cluster_all_is_there_at_once_but_no_door_for_a_kubeconfig() -> None:
    wanted = (workspace(ACCOUNT, msgspec.structs.replace(ACCOUNT, id="k2", token_s=0)),)

    found = SimulatedTenancy().reconcile(wanted, in_use=NOBODY, has_token=NOBODY, repairs=True)

    assert found.bindings == (READY,)
    assert [(token.account, token.token) for token in found.tokens] == [("k1", "")]
    assert "simulated" in found.tokens[0].failure
    assert SimulatedTenancy().reconcile(wanted, in_use=NOBODY, has_token=frozenset({"k1"}), repairs=True).tokens == ()
    (left,) = SimulatedTenancy().reconcile((workspace(desired=Desired.ABSENT),), in_use=NOBODY, has_token=NOBODY, repairs=True).bindings
    assert left.state is BindingState.UNBOUND


class StuckTenancy:
    """A cluster whose API hangs while namespaces are made."""

    def __init__(self) -> None:
        self.is_in, self.may_go = threading.Event(), threading.Event()

    def reconcile(
        self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool
    ) -> TenancyResult:
        self.is_in.set()
        self.may_go.wait()
        return TenancyResult()


class NoHub:
    def post(self, call: Call) -> tuple[int, bytes, float]:
        raise NoAnswer("away")


class BusyTenancy:
    """There is more to do than one look does."""

    def __init__(self) -> None:
        self.looks = threading.Semaphore(0)

    def reconcile(
        self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool
    ) -> TenancyResult:
        self.looks.release()
        return TenancyResult(is_unfinished=True)


def process_with(tenancy: TenancyDriver, stage: Stage) -> tuple[Process, threading.Event]:
    """Returns the process, and what ends it."""
    clock, stop = SystemClock(), threading.Event()
    process = Process(
        cluster=stage.cluster,
        tenancy=tenancy,
        requests=SimulatedRequests(),
        workloads=SimulatedWorkloads(job_s=1),
        telemetry=SimulatedTelemetry(seed="test"),
        pods=SimulatedPods(SimulatedTelemetry(seed="test")),
        connect=NoHub,
        join_token=lambda: "token",
        clock=clock,
        log=Log(clock),
        stop=stop,
    )
    return process, stop


def test_a_look_at_namespaces_that_left_something_is_followed_by_another_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker_agent.process.TENANCY_SOON_S", 0.01)
    tenancy = BusyTenancy()
    process, stop = process_with(tenancy, Stage())
    running = threading.Thread(target=process.run)
    running.start()

    assert all(tenancy.looks.acquire(timeout=10) for _ in range(5))

    stop.set()
    running.join(10)
    assert not running.is_alive()


def test_passes_go_on_while_namespaces_hang() -> None:
    stage, tenancy = Stage(), StuckTenancy()
    passes = threading.Semaphore(0)
    cluster: ClusterDriver = stage.cluster
    observe = cluster.observe

    def counted() -> Any:
        passes.release()
        return observe()

    stage.cluster.observe = counted  # type: ignore[method-assign]
    process, stop = process_with(tenancy, stage)
    running = threading.Thread(target=process.run)
    running.start()
    assert tenancy.is_in.wait(10)

    assert all(passes.acquire(timeout=10) for _ in range(10))

    stop.set()
    tenancy.may_go.set()
    running.join(10)
    assert not running.is_alive()


def test_namespaces_are_known_once_they_were_looked_at_and_of_a_new_list_anew() -> None:
    """Before, nobody may be told that a namespace is no workspace's."""
    stage = Stage()
    assert not exchange(stage).is_seen
    tell(stage, workspace())
    exchange(stage).report(exchange(stage).wanted, TenancyResult())  # the cluster did not answer
    assert not exchange(stage).is_seen

    exchange(stage).report(exchange(stage).wanted, TenancyResult(bindings=(READY,)))
    assert exchange(stage).is_seen

    tell(stage, workspace(ACCOUNT))
    assert not exchange(stage).is_seen
    tell(stage)
    assert exchange(stage).is_seen

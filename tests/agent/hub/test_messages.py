"""The messages as they are on the wire. These files are the contract with agents and hubs in the field: add, never change.

A fixture that has to change means that a hub and an agent of different versions no longer understand each other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.agents.events import EventsReply, EventsRequest, InventoryEvent, Outcome, StepEvent
from protocol.agents.listings import CLUSTER_REQUESTS, LIFE, TEMPLATES, WORKLOADS, WORKSPACES, Listing, set_digest
from protocol.agents.registration import Credential, RegisterRequest, RenewRequest
from protocol.agents.sync import IdleRelease, SyncReply, SyncRequest
from protocol.agents.transport import Problem
from protocol.assignments import Assignment, Drain, Observed, Phase
from protocol.nodes.checks import CheckPolicy, CheckResult, Verdict
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import GpuView, NodeCondition, NodeOrder, NodeView
from protocol.tenancy.cluster_requests import (
    AutoTemplate,
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestsMessage,
    ClusterRequestSpec,
    ClusterRequestsReply,
    ClusterRequestState,
    ClusterRequestVerdict,
    ModelDescription,
    ModelParameter,
)
from protocol.tenancy.life_marks import LifeMark
from protocol.tenancy.waiting_pods import JobFailed, JobWaiting, PodsWaiting, ReasonWaiting
from protocol.tenancy.workloads import JobWorkload, LogAsk, LogChunk, LogReply, WorkloadPhase, WorkloadSeen
from protocol.tenancy.workspaces import Account, Binding, BindingSeen, BindingState, IssuedToken, Workspace
from worker_agent.hub.link import encoded_digest
from worker_agent.hub.wire import read_problem, read_sync_reply

FIXTURES = Path(__file__).parent / "fixtures"

ASSIGNMENT = Assignment(
    id="7b0c6b2e-0d6a-4a53-9d0f-3f4b0b9d8c11",
    gpr_id="0f5f3c0a-9a4e-4f38-8a83-5b2d1a6f7e22",
    gpr_name="llama-ft",
    slice="team-red",
    namespaces=("red-train", "red-dev"),
    node="aurora-h100-01",
    node_uid="b6c1b1de-6d53-4b3a-8f5e-1c2d3e4f5a66",
    gpus=("GPU-1", "GPU-2"),
    epoch=42,
    desired="PRESENT",
    gang_count=2,
    not_before_s=1800000000.0,
    enter_by_s=1800000900.0,
    duration_s=3600.0,
    not_after_s=None,
    entry_steps=("node_ready", "gpu_health"),
    exit_steps=("drain", "gpu_idle"),
    checks=CheckPolicy(
        limits={"nccl_bandwidth": 430.0}, images={"nccl": "registry.example/nccl:1"}, storage_class="fast", rdma_subnet="fe80:0:0:1"
    ),
    drain=Drain(grace_s=30.0, force_after_s=120.0),
    run=3,
    slice_id="4b1d6f0e-2a3c-4d5e-8f90-1a2b3c4d5e6f",
    replaces="2e1f0a9b-8c7d-4e6f-a5b4-c3d2e1f0a9b8",
)
ORDER = NodeOrder(
    id="9c1d2e3f-4a5b-4c6d-8e7f-0a1b2c3d4e5f",
    supply="spot",
    kind="NODE_POOL",
    shape="H100-80GB",
    gpus_per_node=8,
    gpu_memory_gib=80,
    order_by_s=1800000600.0,
    expected_s=1800001800.0,
)
ACCOUNT = Account(id="1a2b3c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d", role="user", namespace="red-train", token_s=28800)
WORKSPACE = Workspace(
    id="5d4c3b2a-1f0e-4d9c-8b7a-6f5e4d3c2b1a",
    name="team-red",
    bindings=(Binding(namespace="red-old", desired="ABSENT"), Binding(namespace="red-train", desired="PRESENT", may_adopt=True)),
    accounts=(ACCOUNT,),
    pods_max=500,
    may_reach_out=True,
)
CLAIM = ClusterRequest(
    uid="c1a2b3c4-0d1e-4f2a-9b3c-4d5e6f708192",
    namespace="red-train",
    name="llama-ft",
    generation=2,
    spec=ClusterRequestSpec(
        nodes=2,
        duration="8h30m",
        shape="H100-80GB",
        min_gpu_memory_gib=80,
        gpus_per_node=4,
        priority=150,
        earliest_start_at="2027-01-15T08:00:00Z",
        after="prep",
        after_condition="success",
        node_type="hgx-h100",
        rdma=True,
        within="rack",
        idle_timeout="30m",
        evictable=False,
        may_evict=True,
        requeue_on_failure=False,
        run_checks=False,
        model=ModelDescription(name="llama-3-70b", parameters=(ModelParameter(name="batch", value="8"),)),
        workspace="team-red",
        early_release=True,
    ),
    requester="system:serviceaccount:red-train:egs-1a2b3c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d",
    is_auto=True,
    template="standard",
    is_gone=True,
)
CLAIM_STATE = ClusterRequestState(
    id=CLAIM.uid,
    gpr_id=ASSIGNMENT.gpr_id,
    state="EXITING",
    is_ended=False,
    end_reason="EXPIRED",
    message="The booked time was over; its nodes are being taken back.",
    position=3,
    promised_start_s=1800000000.0,
    estimated_start_s=1799999000.0,
    started_s=1800000100.0,
    ends_s=1800003700.0,
    nodes=("aurora-h100-01", "aurora-h100-02"),
)
WAITING_CLAIM = ClusterRequestState(
    id="d0e1f2a3-b4c5-4d6e-8f70-8192a3b4c5d6", gpr_id="5e6f7081-92a3-4b4c-9d5e-6f708192a3b4", state="QUEUED"
)
WORKLOAD = JobWorkload(
    id="5c4b3a29-1807-4e6d-8c5b-4a3928170f6e",
    gpr_id=ASSIGNMENT.gpr_id,
    run=3,
    slice=WORKSPACE.id,
    namespace="red-train",
    name="train-5c4b3a29-3",
    nodes=4,
    kind="PyTorchJob",
    image="registry.example/team/train:1.0",
    command=("torchrun", "train.py"),
    env={"LR": "3e-4"},
    secrets=("hub-token",),
    volumes={"data": "/data"},
    pull_secret="registry",
    user_id=2000,
    retries=2,
    checkpoint=("/bin/save",),
    rdma=True,
    objects=({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}},),
)
TEMPLATE = AutoTemplate(id=WORKSPACE.id, name="standard", spec=ClusterRequestSpec(shape="H100-80GB", duration="8h", rdma=False))
LIFE_MARK = LifeMark(
    id="4711",
    gpr_id=ASSIGNMENT.gpr_id,
    gpr_name="train",
    slice=WORKSPACE.id,
    at_s=1800001000.0,
    state="ACTIVE",
    percent=25,
    message="25 % of the time of train has passed.",
    nodes=("aurora-h100-01",),
)
MESSAGES: dict[str, msgspec.Struct] = {
    "register_request": RegisterRequest(
        join_token="egsb_x", cluster_uid="uid-1", install_id="i-1", agent_version="1.0.0", capabilities=("drain",)
    ),
    "credential": Credential(agent_id="a-1", cluster="aurora", credential="egsa_x", cred_gen=7, expires_s=1800086400.0),
    "renew_request": RenewRequest(cred_gen=7),
    "sync_request": SyncRequest(
        session_epoch=5,
        boot_id="b-1",
        known_hub_id="h-1",
        known_generation=99,
        have_digest="d" * 64,
        wait_s=18.5,
        agent_wall_s=1800000001.25,
        clock_offset_s=-0.125,
        agent_version="1.0.0",
        have_workspaces="w" * 64,
        accounts_left=("0e9d8c7b-6a5f-4e3d-9c2b-1a0f9e8d7c6b",),
        have_claims="c" * 64,
        have_life="e" * 64,
        have_templates="f" * 64,
        have_workloads="a" * 64,
        workload_kinds=("Job", "PyTorchJob"),
        workloads_seen=(
            WorkloadSeen(id=WORKLOAD.id, run=3, phase=WorkloadPhase.FAILED, message="Pod 2 ended with exit code 1.", pods_running=3),
        ),
        bindings=(
            BindingSeen(
                slice=WORKSPACE.id, namespace="red-train", state=BindingState.CONFLICT, detail="It was there before.", repaired=("quota",)
            ),
        ),
        drifts=(
            Drift(what="node gpu-1", detail="The taint was gone.", node="gpu-1", is_repaired=True),
            Drift(what="role x", detail="Gone."),
        ),
        waiting=(
            PodsWaiting(
                namespace="red-train",
                count=5,
                reasons=(ReasonWaiting(text="Waits for GPUs.", count=5, names=("train-0", "train-1", "train-2")),),
                jobs=(JobWaiting(name="train", count=5, fails_s=1800003600.0),),
            ),
        ),
        steps_lost=7,
        jobs_failed=(JobFailed(gpr_id=ASSIGNMENT.gpr_id, namespace="red-train", name="train"),),
        tokens=(IssuedToken(account=ACCOUNT.id, token="t", expires_s=1800003600.0, server="https://api", ca="PEM", failure=""),),
        observed=(
            Observed(
                assignment_id=ASSIGNMENT.id,
                epoch=42,
                phase=Phase.EXITING,
                step="drain",
                active_s=1800000100.0,
                exit_began_s=1800003700.0,
                failure="",
            ),
        ),
    ),
    "sync_reply": SyncReply(
        hub_id="h-1",
        session_epoch=5,
        received_s=1800000001.0,
        sent_s=1800000019.0,
        lease_ttl_s=45.0,
        generation=100,
        count=1,
        digest=set_digest([ASSIGNMENT]),
        assignments=(ASSIGNMENT,),
        orders=(ORDER,),
        workspaces_digest=set_digest([WORKSPACE]),
        workspaces=(WORKSPACE,),
        claims_digest=set_digest([CLAIM_STATE, WAITING_CLAIM]),
        claims=(CLAIM_STATE, WAITING_CLAIM),
        life_digest=set_digest([LIFE_MARK]),
        life=(LIFE_MARK,),
        warn_before_s=120.0,
        templates_digest=set_digest([TEMPLATE]),
        templates=(TEMPLATE,),
        workloads_digest=set_digest([WORKLOAD]),
        workloads=(WORKLOAD,),
        log_asks=(LogAsk(id=WORKLOAD.id, run=3, rank=1),),
        idle_releases=(IdleRelease(gpr_id=ASSIGNMENT.gpr_id, run=3, at_s=1800000600.0),),
    ),
    "sync_reply_unchanged": SyncReply(
        hub_id="h-1",
        session_epoch=5,
        received_s=1800000001.0,
        sent_s=1800000019.0,
        lease_ttl_s=45.0,
        generation=100,
        count=1,
        digest=set_digest([ASSIGNMENT]),
        assignments=None,
        orders=(ORDER,),
        workspaces_digest=set_digest([WORKSPACE]),
        workspaces=None,
        repairs_drift=False,
        claims_digest=set_digest([CLAIM_STATE, WAITING_CLAIM]),
        claims=None,
        life_digest=set_digest([LIFE_MARK]),
        life=None,
        templates_digest=set_digest([TEMPLATE]),
        templates=None,
        workloads_digest=set_digest([WORKLOAD]),
        workloads=None,
    ),
    "events_request": EventsRequest(
        session_epoch=5,
        events=(
            StepEvent(
                seq=1,
                assignment_id=ASSIGNMENT.id,
                epoch=42,
                step="gpu_health",
                attempt=2,
                outcome=Outcome.FAILED,
                started_s=1800000010.0,
                ended_s=1800000012.5,
                log="91 °C at rest (limit 60)",
                evidence={"temperature_c": 91, "ok": False, "ratio": 1.5, "gpu": "GPU-1"},
                results=(
                    CheckResult(
                        check="gpu_temperature", verdict=Verdict.FAIL, gpu="GPU-1", value=91.0, unit="°C", threshold=87.0, text="hot"
                    ),
                    CheckResult(check="nccl_bandwidth", verdict=Verdict.PASS, value=470.0, unit="GB/s", threshold=460.0, is_least=True),
                ),
                blames_node=False,
            ),
            InventoryEvent(
                seq=2,
                nodes=(
                    NodeView(
                        name="aurora-h100-01",
                        uid="b6c1b1de-6d53-4b3a-8f5e-1c2d3e4f5a66",
                        shape="H100-80GB",
                        node_type="hgx-h100",
                        gpus=(GpuView(uuid="GPU-1", index=0, model="H100", memory_gib=80, healthy=True),),
                        ready=True,
                        rdma=True,
                        zone="eu-north-1a",
                        rack="rack-a1",
                        order="9c1d2e3f-4a5b-4c6d-8e7f-0a1b2c3d4e5f",
                        supply="spot",
                        conditions=(
                            NodeCondition(
                                type="GpuUnhealthy",
                                status="True",
                                reason="Xid79",
                                message="GPU 3 fell off the bus.",
                                since_s=1_800_000_000.0,
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
    "events_reply": EventsReply(stored_seq=2, stale=(1,)),
    "claims_request": ClusterRequestsMessage(session_epoch=5, claims=(CLAIM, ClusterRequest(uid="u-1", namespace="red-dev", name="small"))),
    "claims_reply": ClusterRequestsReply(
        answers=(
            ClusterRequestAnswer(uid=CLAIM.uid, generation=2, verdict=ClusterRequestVerdict.TAKEN, gpr_id=ASSIGNMENT.gpr_id),
            ClusterRequestAnswer(
                uid="u-1", generation=0, verdict=ClusterRequestVerdict.REFUSED, reason="over_policy", message="Book less."
            ),
        )
    ),
    "log_chunk": LogChunk(
        session_epoch=5, id=WORKLOAD.id, run=3, rank=1, since="2026-11-27T10:00:00Z", until="2026-11-27T10:00:01.5Z", text="loss 0.1\n"
    ),
    "log_reply": LogReply(until="2026-11-27T10:00:01.5Z"),
    "problem": Problem(status=409, code="agent_superseded", detail="Stop."),
}


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_text())


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_written_as_it_always_was(name: str) -> None:
    assert json.loads(msgspec.json.encode(MESSAGES[name])) == fixture(name)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_read_as_it_always_was_whatever_else_it_holds(name: str) -> None:
    newer = fixture(name) | {"a_field_of_tomorrow": {"x": [1, 2]}}
    assert msgspec.json.decode(json.dumps(newer), type=type(MESSAGES[name])) == MESSAGES[name]


def test_an_assignment_of_the_first_version_has_what_came_later_by_default() -> None:
    first = {key: value for key, value in fixture("sync_reply")["assignments"][0].items() if key not in ("run", "drain", "checks")}
    assert msgspec.convert(first, type=Assignment) == msgspec.structs.replace(ASSIGNMENT, run=1, drain=Drain(), checks=CheckPolicy())


def test_an_assignment_of_a_hub_that_does_not_tell_of_spares_replaces_none() -> None:
    first = fixture("sync_reply")["assignments"][0]
    del first["replaces"]
    assert msgspec.convert(first, type=Assignment).replaces == ""


def test_an_agent_that_does_not_know_all_of_an_assignment_takes_the_rest_and_the_digest_over_all() -> None:
    newer = fixture("sync_reply")
    newer["assignments"][0]["a_field_of_tomorrow"] = "x"
    received = read_sync_reply(json.dumps(newer).encode())
    assert received.reply.assignments == (ASSIGNMENT,)
    assert received.raw_digest == encoded_digest([msgspec.Raw(json.dumps(newer["assignments"][0]).encode())])


def test_a_step_of_the_first_version_measured_nothing_by_name_and_blames_its_node() -> None:
    step = fixture("events_request")["events"][0]
    for later in ("results", "blames_node"):
        del step[later]
    event = msgspec.convert(step, type=StepEvent)
    assert (event.results, event.blames_node) == ((), True)


def test_a_hub_that_knows_of_no_orders_has_none() -> None:
    first = fixture("sync_reply_unchanged")
    del first["orders"]
    assert msgspec.convert(first, type=SyncReply).orders == ()


def test_a_hub_that_says_nothing_of_warnings_has_pods_warned_ten_minutes_before_the_end() -> None:
    first = fixture("sync_reply_unchanged")
    del first["warn_before_s"]
    assert msgspec.convert(first, type=SyncReply).warn_before_s == 600.0


@pytest.mark.parametrize("listing", [WORKSPACES, CLUSTER_REQUESTS, LIFE, TEMPLATES, WORKLOADS], ids=lambda listing: listing.name)
def test_a_hub_that_knows_of_no_such_list_tells_none_and_an_agent_that_does_not_has_none(listing: Listing[Any]) -> None:
    reply, request = fixture("sync_reply_unchanged"), fixture("sync_request")
    del reply[listing.name], reply[listing.digest], request[listing.have]

    told, asked = msgspec.convert(reply, type=SyncReply), msgspec.convert(request, type=SyncRequest)

    assert (getattr(told, listing.name), getattr(told, listing.digest)) == (None, "")
    assert not getattr(asked, listing.have)


def test_an_agent_that_knows_of_no_workspaces_says_nothing_of_them() -> None:
    first = fixture("sync_request")
    for later in ("bindings", "tokens"):
        del first[later]
    request = msgspec.convert(first, type=SyncRequest)
    assert (request.bindings, request.tokens) == ((), ())


def test_an_agent_that_tells_of_no_pods_has_not_looked_at_them() -> None:
    first = fixture("sync_request")
    del first["waiting"], first["jobs_failed"]
    request = msgspec.convert(first, type=SyncRequest)
    assert (request.waiting, request.jobs_failed) == (None, ())


def test_a_node_of_the_first_version_was_ordered_by_nobody() -> None:
    (first,) = fixture("events_request")["events"][1]["nodes"]
    for later in ("nvlink_domain", "order", "supply"):
        del first[later]
    view = msgspec.convert(first, type=NodeView)
    assert (view.nvlink_domain, view.order, view.supply) == ("", "", "")


def test_the_digest_over_the_wire_is_the_digest_over_the_set() -> None:
    other = msgspec.structs.replace(ASSIGNMENT, id="00000000")
    reply = msgspec.structs.replace(MESSAGES["sync_reply"], assignments=(ASSIGNMENT, other), count=2)
    assert read_sync_reply(msgspec.json.encode(reply)).raw_digest == set_digest([other, ASSIGNMENT])


def test_what_is_no_problem_document_is_a_problem_without_a_code() -> None:
    assert read_problem(502, b"<html>Bad Gateway") == Problem(status=502, code="", detail="<html>Bad Gateway")

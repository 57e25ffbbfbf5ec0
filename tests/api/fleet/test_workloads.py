"""`workloads/` and `pods/`: what each may know of what runs in boxes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr
from observability.workloads.models import Workload
from slices.namespaces.services import namespace_bind
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.observability.telemetry.saying import gpus_of, reading, store
from tests.observability.workloads.saying import GATED, JOB, pods_of, seen, tell


@pytest.fixture
def box(world: World) -> Gpr:
    """Pods train in the box, others wait; a stranger's pods run elsewhere."""
    people = world.people
    namespace_bind(slice_=world.slice, cluster=world.cluster, name="train", actor=None, now=db_now())
    namespace_bind(slice_=world.foreign_slice, cluster=world.cluster, name="foreign", actor=None, now=db_now())
    box = factories.active(world.slice, people.owner, nodes=1)
    arguments = ("torchrun", "--tensor-parallel-size", "8", "train.py", "--model", "llama", "--hf-token", "(hidden)")
    pods = pods_of(box, "train", image="nvcr.io/nvidia/nemo:1", arguments=arguments)
    theirs = seen("theirs", "foreign", owners=(), model="secret-model", node=f"{world.cluster.name}-1")
    tell(world.cluster, *pods, seen("waits", "train", owners=(JOB,), gpu_count=2, **GATED), theirs)
    return box


def names(caller: Caller, path: str, **query: Any) -> list[str]:
    answer = caller.get(path, **query)
    assert answer.status_code == 200, answer.content
    return sorted(row["name"] for row in answer.json()["results"])


@pytest.mark.both_databases
def test_members_see_workloads_and_pods_of_their_workspaces_and_overseers_all(
    box: Gpr, owner: Caller, teammate: Caller, outsider: Caller, admin: Caller
) -> None:
    for member in (owner, teammate):
        assert names(member, "workloads/") == ["train", "train-worker"]
        assert names(member, "pods/") == [f"{box.name}-0", "waits"]
    assert (names(outsider, "workloads/"), names(outsider, "pods/")) == (["theirs"], ["theirs"])
    assert names(admin, "workloads/") == ["theirs", "train", "train-worker"]

    theirs = Workload.objects.get(name="theirs")
    for reference in (str(theirs.pk), "theirs"):
        assert_problem(owner.get(f"workloads/{reference}/"), 404, "not_found")
    for search in ("theirs", "secret-model", "foreign", theirs.slice.name):
        assert names(owner, "workloads/", q=search) == []
        assert names(owner, "pods/", q=search) == []
    assert names(owner, "pods/", workload=str(theirs.pk)) == []


def test_one_workload_is_shown_with_its_configuration_and_what_its_gpus_do(world: World, box: Gpr, owner: Caller) -> None:
    gpu = gpus_of(factories.held(box)[0].node)[3]
    store(world.cluster, reading(gpu, at=db_now(), temperature_c=71, utilization_percent=95, xid=94, ecc_corrected=7))

    found = owner.get("workloads/train/").json()

    assert (found["kind"], found["state"], found["model"], found["framework"]) == ("JobSet", "RUNNING", "llama", "NeMo")
    assert [gpr["id"] for gpr in found["gprs"]] == [str(box.pk)]
    assert found["config"]["parallelism"] == {"tensor": 8}
    assert "(hidden)" in found["config"]["arguments"]
    hot = found["gpus"][3]
    assert (hot["id"], hot["pod"], hot["place"], hot["reading"]["temperature_c"]) == (str(gpu.pk), f"{box.name}-0", "worker 0", 71)
    assert (hot["reading"]["xid"], hot["reading"]["ecc_corrected"]) == (None, None)  # they count from before the box
    assert [each["reading"] for each in found["gpus"][:3]] == [None] * 3


def test_a_pod_says_what_keeps_it_from_running(box: Gpr, owner: Caller) -> None:
    (pod,) = owner.get("pods/", view="held-back").json()["results"]

    assert (pod["name"], pod["hold"], pod["why"], pod["gpr"]) == ("waits", "gate", "Waits for GPUs.", None)


def test_lists_are_narrowed(world: World, box: Gpr, owner: Caller) -> None:
    assert names(owner, "workloads/", view="waiting") == ["train-worker"]
    assert names(owner, "workloads/", kind="jobset", state="RUNNING,WAITING", namespace="train", cluster="aurora") == ["train"]
    assert names(owner, "workloads/", gpr=box.name, slice="vision") == ["train"]
    assert names(owner, "workloads/", q="llam") == ["train"]
    assert names(owner, "pods/", gpr=str(box.pk), view="running", node=factories.held(box)[0].node.name) == [f"{box.name}-0"]
    assert names(owner, "pods/", view="ended") == []
    assert owner.get("pods/", sort="name").status_code == 400


def test_a_workload_of_a_silent_cluster_is_marked(world: World, box: Gpr, owner: Caller) -> None:
    world.cluster.agent.last_sync_at = db_now() - timedelta(minutes=5)
    world.cluster.agent.save()

    assert all(row["is_stale"] for row in owner.get("workloads/").json()["results"])


def test_ten_rows_cost_as_many_queries_as_two(world: World, box: Gpr, owner: Caller) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            owner.get(path)
        return len(captured)

    queries("pods/")  # the first use of a token is stored
    few = [queries(path) for path in ("workloads/", "pods/")]
    tell(world.cluster, *(seen(f"p{n}", "train", owners=(), gpr_id=str(box.pk), node="n") for n in range(10)))

    assert [queries(path) for path in ("workloads/", "pods/")] == few

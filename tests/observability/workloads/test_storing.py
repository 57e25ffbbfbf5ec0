"""The hub groups pods into workloads, with the GPUs that they hold and ask for."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr
from inventory.models import Cluster
from inventory.services.agents import AgentIdentity, AgentSuperseded
from observability.workloads.measuring import workloads_step
from observability.workloads.models import Pod, Workload
from observability.workloads.selectors import gpus_of
from observability.workloads.services import POD_KEPT, WORKLOAD_KEPT, pods_store
from protocol.pods import PodOwner, PodsRequest
from slices.models import Slice
from slices.namespaces.services import namespace_bind
from tests import factories
from tests.builders import unique
from tests.observability.telemetry.saying import reading, store
from tests.observability.workloads.saying import GATED, JOB_SET, pods_of, seen, tell

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def cluster() -> Cluster:
    return factories.cluster(unique("c"), nodes=2, gpus=4)


@pytest.fixture
def vision(cluster: Cluster) -> Slice:
    return bound(cluster, "vision-ns")


def bound(cluster: Cluster, namespace: str) -> Slice:
    made = factories.make_slice(cluster, owner=factories.user(unique("owner")))
    namespace_bind(slice_=made, cluster=cluster, name=namespace, actor=None, now=db_now())
    return made


@pytest.fixture
def box(vision: Slice) -> Gpr:
    return factories.active(vision, vision.memberships.get().user, nodes=2)


def only(**of: object) -> Workload:
    return Workload.objects.get(**of)


def test_pods_of_one_owner_are_one_workload_with_its_gpus_and_its_request(cluster: Cluster, box: Gpr) -> None:
    pods = pods_of(box, "vision-ns", image="nvcr.io/nvidia/nemo:1", arguments=("torchrun", "--nnodes", "2", "--model", "llama"))
    tell(cluster, *pods, seen("waits", "vision-ns", gpu_count=2, **GATED))

    row = only()
    assert (row.kind, row.name, row.state, row.model, row.framework) == ("JobSet", "train", "RUNNING", "llama", "NeMo")
    assert (row.pods_running, row.pods_waiting, row.gpus_held, row.gpus_asked) == (2, 1, 8, 2)
    assert list(row.gprs.all()) == [box]
    assert row.config["parallelism"] == {"nodes": 2}
    held = gpus_of([row])[row.pk]
    assert [(gpu.gpu.node.name, gpu.gpu.index, gpu.pod and gpu.pod.rank) for gpu in held] == [
        (f"{cluster.name}-{node}", index, node) for node in range(2) for index in range(4)
    ]


def test_a_pod_made_anew_under_the_same_name_is_another_pod(cluster: Cluster, vision: Slice) -> None:
    tell(cluster, seen("p", "vision-ns", uid="first"))
    tell(cluster, seen("p", "vision-ns", uid="second", **GATED), gone=["first"])

    assert {pod.uid: pod.gone_at is None for pod in Pod.objects.all()} == {"first": False, "second": True}
    assert (only().state, only().pods_waiting) == ("WAITING", 1)


def test_an_owner_that_somebody_else_s_pod_names_too_is_another_workload(cluster: Cluster, vision: Slice) -> None:
    """Everybody may write any owner, with any UID, into his pods."""
    other = bound(cluster, "other-ns")
    tell(cluster, seen("p", "vision-ns"), seen("q", "other-ns"))

    assert {row.slice: row.name for row in Workload.objects.all()} == {vision: "train", other: "train"}


def test_pods_of_namespaces_without_a_workspace_and_requests_of_others_are_not_taken(cluster: Cluster, vision: Slice, box: Gpr) -> None:
    bound(cluster, "other-ns")
    reply = tell(cluster, seen("p", "loose"), seen("q", "other-ns", gpr_id=str(box.pk), node=f"{cluster.name}-0", gpus=("GPU-none",)))

    assert reply.refused == 1
    (pod,) = Pod.objects.all()
    assert (pod.gpr, pod.gpus) == (None, [])


def test_a_workload_ends_with_its_last_pod_and_is_forgotten_in_time(cluster: Cluster, vision: Slice) -> None:
    now = db_now()
    tell(cluster, seen("p", "vision-ns", node="n"), at=now)
    tell(cluster, there=[], at=now)

    assert (only().state, only().ended_at) == ("ENDED", now)
    workloads_step(now=now + POD_KEPT + timedelta(minutes=1))
    assert (Pod.objects.count(), Workload.objects.count()) == (0, 1)
    workloads_step(now=now + WORKLOAD_KEPT + timedelta(minutes=1))
    assert Workload.objects.count() == 0


def test_the_agent_is_asked_for_all_where_some_are_not_known(cluster: Cluster, vision: Slice) -> None:
    pod = seen("p", "vision-ns")
    assert not tell(cluster, pod, there=[pod.uid]).again
    assert tell(cluster, there=[pod.uid, "lost"]).again


def test_a_pod_that_gets_another_owner_leaves_its_old_workload(cluster: Cluster, vision: Slice) -> None:
    tell(cluster, seen("p", "vision-ns", owners=()))
    tell(cluster, seen("p", "vision-ns"))

    assert {row.kind: row.state for row in Workload.objects.all()} == {"Pod": "ENDED", "JobSet": "WAITING"}


def test_the_launcher_s_word_does_not_count_where_a_worker_has_spoken(cluster: Cluster, vision: Slice) -> None:
    tell(cluster, seen("worker", "vision-ns", gpu_count=8, image="train:1"))
    tell(cluster, seen("launcher", "vision-ns", gpu_count=1, image="launch:1"))

    assert only().config["image"] == "train:1"


def test_gpus_of_pods_that_share_a_node_are_named_only_where_they_are_known(cluster: Cluster, box: Gpr) -> None:
    """Two workloads in one box: of the one that says nothing of its GPUs none is shown."""
    mine, other = pods_of(box, "vision-ns")
    quiet = msgspec.structs.replace(mine, gpus=(), gpu_count=2)
    known = seen("k", "vision-ns", owners=(), gpr_id=str(box.pk), node=mine.node, gpu_count=2, gpus=mine.gpus[:2])
    tell(cluster, quiet, other, known)

    gang, single = only(kind="JobSet"), only(kind="Pod")
    found = gpus_of([gang, single])
    assert [gpu.gpu.uuid for gpu in found[single.pk]] == list(mine.gpus[:2])
    assert {gpu.gpu.node.name for gpu in found[gang.pk]} == {other.node}


def test_an_older_session_of_the_agent_is_refused(cluster: Cluster, vision: Slice) -> None:
    with pytest.raises(AgentSuperseded):
        pods_store(agent=AgentIdentity(cluster, 1), message=PodsRequest(session_epoch=6), now=db_now())


def test_what_gpus_did_is_added_up_for_their_workload(cluster: Cluster, box: Gpr) -> None:
    tell(cluster, *pods_of(box, "vision-ns"))
    gpus = [gpu.gpu for gpu in gpus_of([only()])[only().pk]]
    now = db_now()
    for step in range(3):
        at = now + timedelta(seconds=15 * step)
        store(cluster, *(reading(gpu, at=at, temperature_c=60 + gpu.index, utilization_percent=40, power_w=500) for gpu in gpus), now=at)
        workloads_step(now=at)

    row = only()
    assert (row.use_percent, row.temperature_c, row.power_w, row.efficiency_percent) == (40, 63, 4000, 40)
    assert [hours * 3600 for hours in (row.held_hours, row.used_hours, row.wasted_hours)] == pytest.approx([240, 96, 144])
    assert row.held_gpu_s == pytest.approx(30 * 8)


def test_a_thousand_pods_cost_few_queries(cluster: Cluster, vision: Slice) -> None:
    owners = [PodOwner(api="batch/v1", kind="Job", name=f"j{n}", uid=f"j{n}") for n in range(20)]
    some, many = ([seen(f"{count}-{n}", "vision-ns", owners=(owners[n % 20], JOB_SET)) for n in range(count)] for count in (5, 400))
    counts = []
    for pods in (some, many):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            tell(cluster, *pods)
        counts.append(len(queries))

    assert counts[1] <= counts[0] + 8  # SQLite takes so many rows in several statements

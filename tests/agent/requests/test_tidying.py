"""Automatic requests that are over are deleted some time later, or a namespace with many short jobs would be full one day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.tenancy.cluster_requests import ClusterRequestState
from tests.agent.fake_kube import waiting_pod
from worker_agent.cluster.base import ClusterError, Unavailable
from worker_agent.kube.api.client import Forbidden, Missing
from worker_agent.kube.api.custom import GIVEN_BACK, Custom
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.requests.cleanup import AT_ONCE, EVERY_S, KEPT_MOST, KEPT_S, REFUSALS_MOST, RequestCleanup

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
LONG_S = KEPT_S + 60


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def request(
    name: str,
    *,
    ended_s: float | None = LONG_S,
    auto: str = "true",
    state: str = "COMPLETED",
    namespace: str = "red",
    accepted: bool = True,
) -> Custom:
    """It ended `ended_s` ago. None means that it goes on."""
    at = stamp(NOW - timedelta(seconds=ended_s or 0.0))
    conditions = [
        {"type": "Accepted", "status": str(accepted), "lastTransitionTime": at},
        {"type": "Finished", "status": str(accepted and ended_s is not None), "lastTransitionTime": at},
    ]
    annotations = {cluster_names.AUTO: auto} if auto else {}
    about = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 2, "annotations": annotations}
    status = {"state": state, "observedGeneration": 2, "conditions": conditions, **({"gprID": "g"} if accepted else {})}
    return msgspec.convert({"metadata": about, "spec": {}, "status": status}, Custom)


class Cluster:
    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.fault: ClusterError | None = None
        self.refusing: set[str] = set()  # namespaces
        self.refusal: ClusterError = Forbidden("403")
        self.pods: list[Pod] = []
        self.states: dict[str, ClusterRequestState] | None = {}
        self.bound = {"red", "blue"}
        self.notes: list[str] = []
        self.now_mono = 0.0
        self.tidying = RequestCleanup(
            api=self,  # type: ignore[arg-type]
            pods=lambda: self.pods,
            note=lambda event, _: self.notes.append(event),
        )

    def delete(self, path: str, **options: Any) -> None:
        name = path.rpartition("/")[2]
        assert options == {"uid": f"uid-{name}"}  # of this very object
        if self.fault is not None:
            raise self.fault
        if path.split("/")[5] in self.refusing:
            raise self.refusal
        self.deleted.append(name)

    def look(self, *requests: Custom) -> Sequence[str]:
        """Returns what is deleted at the next look that is due."""
        before, self.now_mono = len(self.deleted), self.now_mono + EVERY_S
        self.tidying.look(requests, self.states, is_bound=self.bound.__contains__, now=NOW, now_mono=self.now_mono)
        return self.deleted[before:]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_an_automatic_request_goes_a_day_after_its_end(cluster: Cluster) -> None:
    there = [request("old"), request("young", ended_s=KEPT_S - 60), request("open", ended_s=None), request("unused", auto=GIVEN_BACK)]

    assert cluster.look(*there) == ["old", "unused"]


def test_one_that_people_made_stays_however_many_there_are(cluster: Cluster) -> None:
    assert cluster.look(*(request(f"mine{number}", auto="") for number in range(KEPT_MOST + 10))) == []


def test_where_many_are_over_the_oldest_of_a_namespace_go_sooner(cluster: Cluster) -> None:
    many = [request(f"r{number}", ended_s=60.0 + number) for number in range(KEPT_MOST + 3)]
    few = [request(f"b{number}", ended_s=3600.0, namespace="blue") for number in range(10)]

    assert cluster.look(*few, *many) == [f"r{KEPT_MOST + 2}", f"r{KEPT_MOST + 1}", f"r{KEPT_MOST}"]


def test_one_look_deletes_so_many_and_the_next_goes_on(cluster: Cluster) -> None:
    there = [request(f"r{number}", ended_s=LONG_S + number) for number in range(AT_ONCE + 5)]

    first = cluster.look(*there)
    assert len(first) == AT_ONCE
    assert len(cluster.look(*(each for each in there if each.metadata.name not in first))) == 5


def test_looks_that_follow_each_other_closely_cost_nothing(cluster: Cluster) -> None:
    cluster.look()
    cluster.tidying.look([request("old")], {}, is_bound=lambda _: True, now=NOW, now_mono=cluster.now_mono + EVERY_S / 2)

    assert cluster.deleted == []


@pytest.mark.parametrize("states", [None, {"uid-old": ClusterRequestState(id="uid-old", gpr_id="g", state="ACTIVE", is_auto=True)}])
def test_nothing_goes_of_which_the_hub_does_not_say_that_it_is_over(
    cluster: Cluster, states: dict[str, ClusterRequestState] | None
) -> None:
    """None means that it has not said anything yet."""
    cluster.states = states

    assert cluster.look(request("old")) == []

    cluster.states = {"uid-old": ClusterRequestState(id="uid-old", gpr_id="g", state="COMPLETED", is_auto=True, is_ended=True)}
    assert cluster.look(request("old")) == ["old"]


def test_in_a_namespace_of_no_workspace_nothing_goes(cluster: Cluster) -> None:
    cluster.bound = set()

    assert cluster.look(request("old")) == []


def waits(made_s: float, namespace: str = "red") -> Pod:
    """A pod that was made so long ago."""
    pod = waiting_pod("p0", namespace)
    pod["metadata"]["creationTimestamp"] = (NOW - timedelta(seconds=made_s)).isoformat()
    return msgspec.convert(pod, Pod)


def test_a_withdrawn_one_stays_while_pods_wait_that_would_get_another_without_it(cluster: Cluster) -> None:
    withdrawn, over = request("withdrawn", state="CANCELED"), request("over")
    cluster.pods = [waits(LONG_S + 10)]
    assert cluster.look(withdrawn, over) == ["over"]

    cluster.pods = [waits(LONG_S - 10), waits(LONG_S + 10, "blue")]
    assert cluster.look(withdrawn) == ["withdrawn"]


def test_one_that_was_refused_and_is_not_wanted_any_more_goes_too(cluster: Cluster) -> None:
    """It never was in EGS, and never can be."""
    refused = request("refused", accepted=False, state="REFUSED")
    given_back = request("given-back", accepted=False, state="REFUSED", auto=GIVEN_BACK)

    assert cluster.look(refused, given_back) == ["given-back"]


@pytest.mark.parametrize("fault", [Forbidden("403"), Unavailable("503")])
def test_an_api_server_that_does_not_do_it_is_left_in_peace_and_it_is_noted_once(cluster: Cluster, fault: ClusterError) -> None:
    """The role of an older agent lacks the right."""
    cluster.fault = fault
    for _ in range(5):
        cluster.look(request("a"), request("b"))
    assert cluster.notes == ["requests_not_deleted"]

    cluster.fault = None
    assert cluster.look(request("a")) == ["a"]


def test_one_that_somebody_else_deleted_holds_up_no_other(cluster: Cluster) -> None:
    cluster.fault = Missing("404")
    cluster.look(request("a"))

    assert cluster.notes == []


def test_a_namespace_in_which_it_is_refused_keeps_no_other_full(cluster: Cluster) -> None:
    """Somebody's webhook refuses it there alone."""
    strict = [f"strict{number}" for number in range(2 * REFUSALS_MOST)]
    cluster.bound, cluster.refusing = {"red", *strict}, set(strict)
    there = [*(request(f"{namespace}-{number}", namespace=namespace) for namespace in strict for number in range(2)), request("old")]

    looks = [cluster.look(*there) for _ in range(3)]

    assert looks[2] == ["old"]
    assert cluster.notes == ["requests_not_deleted", "requests_deleted"]


def test_nor_does_one_in_which_it_cannot_be_done(cluster: Cluster) -> None:
    """A webhook that does not answer is trouble of the API server's own."""
    cluster.refusing, cluster.refusal = {"blue"}, Unavailable("500 failed calling webhook")
    there = [request("b", namespace="blue"), request("old")]

    looks = [cluster.look(*there) for _ in range(2)]

    assert looks[1] == ["old"]


def test_namespaces_take_turns(cluster: Cluster) -> None:
    many = [request(f"r{number}", ended_s=2 * LONG_S) for number in range(2 * AT_ONCE)]

    assert "b" in cluster.look(*many, request("b", namespace="blue"))

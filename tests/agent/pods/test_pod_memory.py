"""Pods are people's to write, as large and as many as they like: what the agent keeps of each, and does for each, stays small."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from protocol import cluster_names
from tests.agent.fake_kube import Object, fill, made, waiting_pod
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import Namespace, Pod
from worker_agent.kube.pods import needs
from worker_agent.kube.pods.lifting import annotate_ops, asks_for_gpus, why_never
from worker_agent.kube.pods.workloads import is_waiting

LONG = "x" * 250_000 + "\U0001f600"  # four bytes a character in memory


def read(body: Object) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def marked(labels: Object, annotations: Object | None, owners: Sequence[Object] = ()) -> Pod:
    pod = waiting_pod("p")
    pod["metadata"] |= {"labels": labels, "annotations": annotations, "ownerReferences": [*owners]}
    return read(pod)


def test_labels_and_annotations_that_the_agent_does_not_read_are_not_kept() -> None:
    pod = marked({cluster_names.POD_GPR: "g", "app": "serve"}, {cluster_names.ENDS_AT: "2026-11-25T18:00:00Z", "a/b": LONG})

    assert (pod.metadata.labels, pod.metadata.annotations) == (
        {cluster_names.POD_GPR: "g"},
        {cluster_names.ENDS_AT: "2026-11-25T18:00:00Z"},
    )


def test_what_is_kept_of_a_pod_is_cut_at_a_length() -> None:
    owner = {"apiVersion": "apps/v1", "kind": LONG, "name": LONG, "uid": LONG, "controller": True}

    pod = marked({}, {cluster_names.ENDS_AT: LONG}, [owner, {**owner, "controller": False}])

    assert len(msgspec.json.encode(pod)) < 3_000


def test_a_pod_whose_annotations_are_all_others_still_has_a_map_to_write_into() -> None:
    """Otherwise the first word of the agent would replace what people wrote."""
    has_some, has_none = marked({}, {"a/b": "c"}), marked({}, None)

    assert [op["op"] for op in annotate_ops(has_some.metadata, cluster_names.ENDS_AT, "t")] == ["add"]
    assert annotate_ops(has_some.metadata, cluster_names.ENDS_AT, "t")[0]["path"].endswith("/egs.io~1ends-at")
    assert annotate_ops(has_none.metadata, cluster_names.ENDS_AT, "t")[-1]["path"] == "/metadata/annotations"


def test_finished_pods_which_no_quota_counts_are_not_watched() -> None:
    _, driver = made({}, guard={})

    pods: Mirror[Pod] = driver._pods

    assert pods._watch_params()["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


def test_what_a_waiting_pod_asks_for_is_worked_out_once_however_often_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(pod: Pod) -> str:
        counted.append(pod.metadata.name)
        return why_never(pod)

    monkeypatch.setattr(needs, "why_never", counting)
    _, driver = made({}, guard={}, pods=[waiting_pod("a"), waiting_pod("b")])
    driver.observe()
    fill(
        driver._namespaces, {("", "red"): msgspec.convert({"metadata": {"name": "red", "labels": {cluster_names.SLICE: "red"}}}, Namespace)}
    )

    for _ in range(3):
        driver._drift_repair._last_mono = float("-inf")
        driver.repair_drift(repairs=True)
    assert sorted(counted) == ["a", "b"]

    changed = waiting_pod("a")
    changed["metadata"]["resourceVersion"] = "60"
    driver._pods.learn(read(changed))
    driver.observe()
    assert driver.why_it_waits(read(changed))
    assert sorted(counted) == ["a", "a", "b"]


def test_a_pod_with_more_than_can_be_counted_is_kept_small_is_known_by_its_gpus_and_never_let_in() -> None:
    """People may give each of a thousand pods thousands of containers, gates, tolerations and more."""
    big = waiting_pod("big")
    big["spec"] |= {
        "containers": [
            *({"resources": {"limits": {"cpu": f"{number}m", **{f"a.b/{key}": "1" for key in range(60)}}}} for number in range(500)),
            {"resources": {"limits": {**{f"a.b/{key}": "1" for key in range(60)}, "nvidia.com/gpu": "1"}}},
        ],
        "schedulingGates": [*({"name": f"a.b/{number}"} for number in range(5000)), {"name": cluster_names.GATE}],
        "tolerations": [{"key": f"a.b/{number}"} for number in range(5000)],
        "nodeSelector": {f"a.b/{number}": "x" for number in range(5000)},
    }
    big["metadata"]["finalizers"] = [f"a.b/{number}" for number in range(5000)]

    pod = read(big)

    assert len(msgspec.json.encode(pod)) < 100_000
    assert asks_for_gpus(pod)
    assert is_waiting(pod)
    assert "more than 100 containers" in why_never(pod)
    assert msgspec.structs.replace(pod).spec.is_cut


def test_a_pod_of_usual_size_is_kept_as_far_as_it_is_counted() -> None:
    pod = waiting_pod("p")
    pod["spec"] |= {
        "schedulingGates": [{"name": "a.b/first"}, {"name": cluster_names.GATE}, {"name": "a.b/last"}],
        "nodeSelector": {"zone": "a", cluster_names.NODE_UID: "u"},
        "resourceClaims": [{"name": "c", "resourceClaimName": LONG}],
    }

    spec = read(pod).spec

    assert [gate.name for gate in spec.schedulingGates] == ["a.b/first", cluster_names.GATE]
    assert (spec.nodeSelector, spec.tolerations, spec.is_cut) == ({cluster_names.NODE_UID: "u"}, (), False)
    assert spec.resourceClaims == ({},)
    assert len(spec.containers) == 1


def test_a_pod_with_too_many_gates_before_ours_is_never_let_in() -> None:
    pod = waiting_pod("p")
    pod["spec"]["schedulingGates"] = [*({"name": f"a.b/{number}"} for number in range(50)), {"name": cluster_names.GATE}]

    assert "50 scheduling gates" in why_never(read(pod))

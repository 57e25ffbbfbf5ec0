"""Manifests that people write in a cluster without mutating policies, as docs/how-to/kubernetes.md tells them."""

from __future__ import annotations

from typing import Any, Final

from protocol import cluster_names
from tests.kube.cluster import MUTATING, Cluster, Object

GATES: Final = {"schedulingGates": [{"name": cluster_names.GATE}]}
FREE_TAINT: Final = {"key": cluster_names.TAINT, "value": cluster_names.FREE, "effect": cluster_names.TAINT_EFFECT}


def written(cluster: Cluster, body: Object) -> Object:
    """A pod or workload on GPUs with the gate, a node that joins as managed with the taint; as it is where the cluster adds these."""
    if cluster.has(MUTATING):
        return body
    spec = body.get("spec", {})
    if body.get("kind") == "Node" and cluster_names.MANAGED in body["metadata"].get("labels", {}):
        return {**body, "spec": {**spec, "taints": [*spec.get("taints", []), FREE_TAINT]}}
    if "jobTemplate" in spec:
        return {**body, "spec": {**spec, "jobTemplate": written(cluster, spec["jobTemplate"])}}
    if isinstance(spec.get("template"), dict):  # not the name of one
        return {**body, "spec": {**spec, "template": gated(spec["template"])}} if _wants_gpus(spec["template"]) else body
    return gated(body) if _wants_gpus(body) else body


def gated(pod: Object) -> Object:
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "schedulingGates": [*spec.get("schedulingGates", []), *GATES["schedulingGates"]]}}


def _wants_gpus(pod: Object) -> bool:
    resources: list[Any] = [each.get("resources", {}) for each in pod.get("spec", {}).get("containers", [])]
    return any(key.startswith(cluster_names.GPU_PREFIXES) for each in resources for kind in each.values() for key in kind)

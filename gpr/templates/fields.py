"""Lists the fields that a template can give to a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.words import duration_exact, number
from gpr.models import GprTemplate
from protocol.tenancy.workloads import WorkloadKind

# The same fields as in objects of kind GPRTemplate (worker_agent/kube/requests/spec.py).
FIELDS: Final[tuple[str, ...]] = (
    *("shape", "min_gpu_memory_gib", "nodes", "gpus_per_node", "duration_s", "priority", "node_type", "rdma", "within"),
    *("idle_timeout_s", "evictable", "may_evict", "requeue_on_failure", "run_checks"),
)
LABELS: Final = {"min_gpu_memory_gib": "GiB of GPU memory", "gpus_per_node": "GPUs per node", "rdma": "RDMA"}


def merged(template: GprTemplate, given: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the template with given values, which take precedence."""
    clusters = {"clusters": [str(template.cluster_id)]} if template.cluster_id else {}
    return {**clusters, **template.asked, **given}


def runs(job: Mapping[str, Any]) -> str:
    """Returns e.g. `runs train:1.0 as Job`; "" for a template of requests alone."""
    if not job:
        return ""
    what = job.get("image") or ("own objects" if job.get("objects_wanted") else "an image")
    return f"runs {what} as {job.get('kind', WorkloadKind.JOB.value)}"


def terms(template: GprTemplate) -> str:
    """Returns e.g. `shape H100-80GB, nodes 2, duration 4 h, runs train:1.0 as Job`."""
    parts = [f"{name} {value}" for name, value in labeled(template.asked)] + [runs(template.job)]
    return ", ".join(filter(None, parts)) or "nothing yet"


def labeled(asked: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name in FIELDS:
        if name in asked:
            yield LABELS.get(name) or name.removesuffix("_s").replace("_", " "), _value(name, asked[name])


def _value(name: str, value: Any) -> str:
    if name == "idle_timeout_s" and not value:
        return "none"
    if name.endswith("_s"):
        return duration_exact(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int) else str(value)

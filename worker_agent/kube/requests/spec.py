"""Translates a request object and its template into the hub's protocol. It is pure.

The schema has checked most fields; an older schema may have let anything pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from protocol.decoding import convert
from protocol.tenancy.cluster_requests import ClusterRequest, ClusterRequestSpec
from worker_agent.kube.api.custom import Custom, Fields

# Maps field names of the object to those of the protocol: fields of templates and requests, then fields of requests only.
FROM_TEMPLATE: Final = {
    "shape": "shape",
    "minGpuMemoryGiB": "min_gpu_memory_gib",
    "nodes": "nodes",
    "gpusPerNode": "gpus_per_node",
    "duration": "duration",
    "priority": "priority",
    "nodeType": "node_type",
    "rdma": "rdma",
    "within": "within",
    "idleTimeout": "idle_timeout",
    "evictable": "evictable",
    "mayEvict": "may_evict",
    "requeueOnFailure": "requeue_on_failure",
    "runChecks": "run_checks",
    "model": "model",
}
OF_REQUEST: Final = {
    "workspace": "workspace",
    "earliestStartAt": "earliest_start_at",
    "after": "after",
    "afterCondition": "after_condition",
    "earlyRelease": "early_release",
}
ALL: Final = FROM_TEMPLATE | OF_REQUEST
OF_JOB: Final = {
    "kind": "kind",
    "image": "image",
    "command": "command",
    "env": "env",
    "secrets": "secrets",
    "volumes": "volumes",
    "pullSecret": "pull_secret",
    "userId": "user_id",
    "retries": "retries",
    "checkpoint": "checkpoint",
    "manifest": "manifest",
    "releasesBox": "releases_box",
}
REQUESTER_MAX: Final = 253
TEMPLATE_MAX: Final = 63
# The longest message that the schema of the status accepts.
NOTE_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class SpecFault:
    """Says the reason for which a request is not sent to the hub."""

    reason: str  # of a condition
    message: str  # for people


def template_fields(gpr: Custom, template: Custom | None) -> Fields:
    """Returns the fields as filed, or else as they are now, of a template in the namespace. Others are the hub's."""
    filed = gpr.status_fields.get("templateSpec")
    if isinstance(filed, dict):
        return filed
    if template is None:
        return {}
    return {key: value for key, value in template.fields.items() if key in FROM_TEMPLATE}


def fields_of_spec(spec: ClusterRequestSpec) -> Fields:
    said = msgspec.to_builtins(spec)
    return {key: said[name] for key, name in FROM_TEMPLATE.items() if name in said}


def cluster_request_of(gpr: Custom, words: Fields) -> ClusterRequest | SpecFault:
    """`words` are its template's."""
    spec = spec_of({**words, **gpr.fields}, is_job=gpr.is_job)
    if isinstance(spec, SpecFault):
        return spec
    meta = gpr.metadata
    return ClusterRequest(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        generation=meta.generation,
        spec=spec,
        requester=meta.annotations.requester[:REQUESTER_MAX],
        is_auto=gpr.is_auto,
        template=(meta.annotations.hub_template if gpr.is_auto else _of_hub(gpr, words))[:TEMPLATE_MAX],
    )


def _of_hub(gpr: Custom, words: Fields) -> str:
    """Returns the name of the template that only the hub may know, or ""."""
    return "" if words else str(gpr.fields.get("template") or "")


def spec_of(fields: Fields, *, is_job: bool = False) -> ClusterRequestSpec | SpecFault:
    of_job = OF_JOB if is_job else {}
    unknown = sorted(fields.keys() - ALL.keys() - of_job.keys() - {"template"})
    if unknown:
        return SpecFault("UnknownField", f"EGS knows no field {_short(unknown[0])}. Create the request again without it.")
    given = {ALL[key]: value for key, value in fields.items() if key in ALL and value is not None}
    if is_job:
        given["job"] = {of_job[key]: value for key, value in fields.items() if key in of_job and value is not None}
    try:
        return convert(given, ClusterRequestSpec)
    except msgspec.ValidationError as error:
        said = str(error).replace("`$.job.", "`$.")
        for key, name in (ALL | of_job).items():
            said = re.sub(rf"`\$\.{name}(?=[`.\[])", f"`spec.{key}", said)
        return SpecFault("InvalidSpec", f"It cannot be read: {said}."[:NOTE_MAX])


def _short(text: object) -> str:
    return str(text)[:100]

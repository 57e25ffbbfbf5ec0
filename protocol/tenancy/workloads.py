"""Jobs of GPRs: what the agent runs in an open box, how it goes there, and what it prints."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from protocol.references import is_object_name
from protocol.scalars import Id, Number, Word

LOGS_PATH = "/agent/v1/logs"
WORKLOADS_SEEN_MAX = 200  # in one message
LOG_CHUNK_MAX_CHARS = 64 * 1024
NAME_MAX_CHARS = 50  # of the objects; pods add an index and a suffix to it
NOTEBOOK_PORT = 8888
NOTEBOOK_HOME = "/home/jovyan"  # where images of JupyterLab have it


class WorkloadKind(StrEnum):
    JOB = "Job"
    JOB_SET = "JobSet"
    PYTORCH_JOB = "PyTorchJob"
    MPI_JOB = "MPIJob"
    NOTEBOOK = "Notebook"  # a Job of one pod that serves JupyterLab
    MANIFEST = "Manifest"  # objects of the user's own


# The kinds that a manifest may have. None is a pod, which only controllers make, a role, or a door to the outside.
MANIFEST_KINDS: dict[tuple[str, str], str] = {
    ("batch/v1", "Job"): "jobs",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobsets",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjobs",
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijobs",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("v1", "Service"): "services",
}
FINISHING = frozenset({"Job", "JobSet", "PyTorchJob", "MPIJob"})
MANIFEST_OBJECTS_MAX, MANIFEST_MAX_CHARS = 20, 65_536


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It is made when the box of this run is open, and deleted when that box closes."""

    id: Id  # of the job
    gpr_id: Id
    run: int
    slice: Id
    namespace: Word  # "": the workspace has none in this cluster
    name: Word  # of its objects, another one in each run
    nodes: int
    kind: str = WorkloadKind.JOB
    image: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()  # of the namespace, as environment
    volumes: dict[str, str] = {}  # by name of the PersistentVolumeClaim: where it is mounted
    pull_secret: str = ""
    user_id: int = 1000
    retries: int = 0
    checkpoint: tuple[str, ...] = ()  # a command that runs in each pod before it is ended
    rdma: bool = False
    objects: tuple[dict[str, Any], ...] = ()  # of a manifest
    token: str = ""  # of a notebook


class WorkloadPhase(StrEnum):
    REFUSED = "REFUSED"  # the cluster takes no such object; it is tried again
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class WorkloadSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: Id
    run: int
    phase: WorkloadPhase
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""  # a sentence for people; "" when it runs or succeeded
    pods_running: Number = 0
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""  # where it runs
    url: Annotated[str, msgspec.Meta(max_length=300)] = ""  # of a notebook behind the cluster's ingress


class LogAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody reads the output of this pod now."""

    id: Id  # of the job
    run: int
    rank: Number


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """The hub stores it only if `since` is as far as it has read; the answer says how far that is."""

    session_epoch: int
    id: Id
    run: int
    rank: Number
    since: Annotated[str, msgspec.Meta(max_length=40)] = ""  # the time of the last line before, as the cluster writes it; "": the beginning
    until: Annotated[str, msgspec.Meta(max_length=40)] = ""
    text: Annotated[str, msgspec.Meta(max_length=LOG_CHUNK_MAX_CHARS)] = ""


class LogReply(msgspec.Struct, frozen=True, kw_only=True):
    until: str


class ObjectFault(NamedTuple):
    """The reason why a workspace may not have an object: a place in it, and a sentence."""

    path: tuple[str | int, ...]
    text: str


def objects_fault(objects: Any) -> str:
    """Return why these are no objects that a workspace may have made, as a sentence, or ""."""
    if not isinstance(objects, list | tuple) or not objects:
        return "Give at least one object."
    if len(objects) > MANIFEST_OBJECTS_MAX:
        return f"Give at most {MANIFEST_OBJECTS_MAX} objects."
    if len(msgspec.json.encode(objects)) > MANIFEST_MAX_CHARS:
        return f"The objects are larger than {MANIFEST_MAX_CHARS} bytes together."
    names = set()
    for place, each in enumerate(objects, start=1):
        if fault := object_fault(each):
            return f"Object {place}: {fault.text}"
        name = (each["kind"], each["metadata"]["name"])
        if name in names:
            return f"Object {place}: there is another {name[0]} of the name {name[1]}."
        names.add(name)
    if all(kind == "Service" for kind, _ in names):
        return "Services alone run nothing. Give an object that makes pods, too."
    return ""


def object_fault(each: Any) -> ObjectFault | None:
    if not isinstance(each, dict):
        return ObjectFault((), "it is no object.")
    key = (each.get("apiVersion"), each.get("kind"))
    if not all(isinstance(word, str) for word in key) or key not in MANIFEST_KINDS:
        if None in key:
            return ObjectFault((), "an object needs apiVersion and kind.")
        text = f"kind {str(key[1])[:60]} of {str(key[0])[:60]} is none of {', '.join(kind for _, kind in MANIFEST_KINDS)}."
        return ObjectFault(("kind",), text)
    return _metadata_fault(each.get("metadata")) or _spec_fault(str(key[1]), each.get("spec", {}))


def _metadata_fault(metadata: Any) -> ObjectFault | None:
    at = ("metadata",)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not is_object_name(metadata["name"]):
        return ObjectFault((*at, "name"), "metadata.name must be a name of Kubernetes: a-z, 0-9, - and dots.")
    if "namespace" in metadata:
        return ObjectFault((*at, "namespace"), "leave metadata.namespace out: it gets that of the workspace.")
    if unknown := sorted(set(metadata) - {"name", "labels", "annotations"}):
        return ObjectFault((*at, unknown[0]), f"metadata may have name, labels and annotations, and not {unknown[0][:60]}.")
    for field in ("labels", "annotations"):
        marks = metadata.get(field, {})
        if not isinstance(marks, dict) or not all(isinstance(value, str) for value in marks.values()):
            return ObjectFault((*at, field), f"metadata.{field} must be texts by name.")
        if any(str(name).startswith("egs.io/") for name in marks):
            return ObjectFault((*at, field), f"metadata.{field} under egs.io/ are written by EGS alone.")
    return None


def _spec_fault(kind: str, spec: Any) -> ObjectFault | None:
    if not isinstance(spec, dict):
        return ObjectFault(("spec",), "spec must be an object.")
    if kind == "Service" and (spec.get("externalIPs") or spec.get("type", "ClusterIP") != "ClusterIP"):
        field = "externalIPs" if spec.get("externalIPs") else "type"
        return ObjectFault(("spec", field), "a Service may only be of type ClusterIP, without externalIPs.")
    return None

# `make client` writes this file. Do not edit it.
"""Objects of Kubernetes that a workspace may have made for it, and no others."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from egs_client.manifests.references import is_object_name
from egs_client.manifests.text import field_name

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
MANIFEST_OBJECTS_MAX, MANIFEST_MAX_CHARS = 20, 65_536


class ObjectFault(NamedTuple):
    """Says why a workspace may not have an object: a place in it, and a sentence."""

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
            return placed(place, fault)
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


def placed(place: int, fault: ObjectFault) -> str:
    """Returns e.g. `Object 2, spec.template: …`."""
    where = field_name(fault.path)
    return f"Object {place}{f', {where}' if where else ''}: {fault.text}"

"""Finds what Kubernetes itself would refuse in the objects of a job: a job that waits for its box must not fail then for a missing field.

It knows the required fields, and those that people get wrong. The API server judges the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from protocol.manifests.faults import nearest
from protocol.manifests.objects import ObjectFault
from protocol.manifests.text import Path, quoted

ENDING: Final = ("Never", "OnFailure")
RESTARTS: Final = ("Always", *ENDING)
# The operators of these kinds restart pods themselves.
REPLICAS: Final = {"PyTorchJob": "pytorchReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}
ROLES: Final = {"PyTorchJob": ("Master", "Worker"), "MPIJob": ("Launcher", "Worker")}
NEEDED_ROLE: Final = {"MPIJob": "Launcher"}
PODS: Final = "containers"


def shape_faults(each: dict[str, Any]) -> Iterator[ObjectFault]:
    """`each` is of a kind that a manifest may have."""
    kind, at = str(each["kind"]), ("spec",)
    spec = each.get("spec")
    if not isinstance(spec, dict):
        yield ObjectFault(at, f"A {kind} needs a spec.")
    elif kind == "Job":
        yield from _template(spec, at, restarts=ENDING, is_named=True)
    elif kind == "JobSet":
        yield from _replicated_jobs(spec, (*at, "replicatedJobs"))
    elif kind in REPLICAS:
        yield from _replicas(spec, (*at, REPLICAS[kind]), kind)
    elif kind == "Service":
        if spec.get("clusterIP") != "None" and not spec.get("ports"):
            yield ObjectFault((*at, "ports"), "A Service needs ports, unless its clusterIP is None.")
    else:
        yield from _template(spec, at, restarts=("Always",))
        yield from _selector(spec, at, kind)


def _template(spec: dict[str, Any], at: Path, *, restarts: tuple[str, ...], is_named: bool = False) -> Iterator[ObjectFault]:
    """`is_named`: the default of Kubernetes is none of `restarts`, so the object has to say one."""
    here = (*at, "template")
    template = spec.get("template")
    if not isinstance(template, dict):
        yield ObjectFault(here, f"It needs the template of its pods here, with spec.{PODS}.{_other('template', spec)}")
        return
    pod = template.get("spec")
    if not isinstance(pod, dict):
        yield ObjectFault((*here, "spec"), f"The template of a pod needs a spec with {PODS}.")
        return
    restart = pod.get("restartPolicy")
    if restart is not None or is_named:
        yield from _restart(restart, (*here, "spec", "restartPolicy"), restarts)
    yield from _labels(template.get("metadata"), (*here, "metadata"))
    yield from _containers(pod, (*here, "spec"))


def _other(field: str, found: dict[str, Any]) -> str:
    """Returns the nearest field that is there, if this one is not."""
    return "" if field in found else nearest(field, found)


def _restart(value: Any, at: Path, allowed: tuple[str, ...]) -> Iterator[ObjectFault]:
    if value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else ""
        yield ObjectFault(at, f"Must be {' or '.join(allowed)} here.{near}")


def _labels(metadata: Any, at: Path) -> Iterator[ObjectFault]:
    for field in ("labels", "annotations"):
        marks = metadata.get(field) if isinstance(metadata, dict) else None
        for name, value in marks.items() if isinstance(marks, dict) else ():
            yield from _text(value, (*at, field, name))


def _containers(pod: dict[str, Any], at: Path) -> Iterator[ObjectFault]:
    here = (*at, PODS)
    if not isinstance(pod.get(PODS), list) or not pod[PODS]:
        yield ObjectFault(here, f"A pod needs a list of {PODS}, each with name and image.{_other(PODS, pod)}")
    for field in ("initContainers", PODS):
        names: set[str] = set()
        found = pod.get(field)
        for place, container in enumerate(found if isinstance(found, list) else ()):
            yield from _container(container, (*at, field, place), names)


def _container(container: Any, at: Path, names: set[str]) -> Iterator[ObjectFault]:
    if not isinstance(container, dict):
        yield ObjectFault(at, "A container is a mapping with name and image.")
        return
    for field in ("name", "image"):
        if container.get(field) in (None, ""):
            yield ObjectFault((*at, field), f"A container needs {'a name' if field == 'name' else 'an image'}.")
        else:
            yield from _text(container[field], (*at, field))
    if (name := str(container.get("name"))) in names:
        yield ObjectFault((*at, "name"), "Another container of this pod has the same name.")
    names.add(name)
    for field in ("command", "args"):
        words = container.get(field)
        if words is not None and not isinstance(words, list):
            yield ObjectFault((*at, field), 'Must be a list of texts, as ["python", "train.py"].')
        for place, word in enumerate(words if isinstance(words, list) else ()):
            yield from _text(word, (*at, field, place))
    yield from _variables(container.get("env"), (*at, "env"))


def _variables(env: Any, at: Path) -> Iterator[ObjectFault]:
    if env is not None and not isinstance(env, list):
        yield ObjectFault(at, "Must be a list of {name: NAME, value: TEXT}.")
    for place, variable in enumerate(env if isinstance(env, list) else ()):
        if not isinstance(variable, dict) or not variable.get("name"):
            yield ObjectFault((*at, place), "A variable needs a name.")
        elif variable.get("value") is not None:
            yield from _text(variable["value"], (*at, place, "value"))


def _text(value: Any, at: Path) -> Iterator[ObjectFault]:
    if not isinstance(value, str):
        yield ObjectFault(at, f"Must be text.{quoted(value)}")


def _selector(spec: dict[str, Any], at: Path, kind: str) -> Iterator[ObjectFault]:
    selector = spec.get("selector")
    if not isinstance(selector, dict) or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield ObjectFault((*at, "selector"), f"A {kind} needs a selector with matchLabels, which the labels of its template have.")
        return
    wanted = selector.get("matchLabels")
    labels: Any = spec.get("template")
    for name in ("metadata", "labels"):
        labels = labels.get(name) if isinstance(labels, dict) else None
    if isinstance(wanted, dict) and not wanted.items() <= (labels if isinstance(labels, dict) else {}).items():
        yield ObjectFault((*at, "selector", "matchLabels"), "The labels of its template must have all of these.")


def _replicated_jobs(spec: dict[str, Any], at: Path) -> Iterator[ObjectFault]:
    jobs = spec.get("replicatedJobs")
    if not isinstance(jobs, list) or not jobs:
        yield ObjectFault(at, "A JobSet needs a list of replicatedJobs, each with name and template.")
        return
    for place, job in enumerate(jobs):
        if not isinstance(job, dict) or not isinstance(job.get("name"), str):
            yield ObjectFault((*at, place, "name"), "A replicated job needs a name.")
        template: Any = job.get("template") if isinstance(job, dict) else None
        inner = template.get("spec") if isinstance(template, dict) else None
        if isinstance(inner, dict):
            yield from _template(inner, (*at, place, "template", "spec"), restarts=ENDING, is_named=True)
        else:
            yield ObjectFault((*at, place, "template", "spec"), "A replicated job needs a template with the spec of a Job.")


def _replicas(spec: dict[str, Any], at: Path, kind: str) -> Iterator[ObjectFault]:
    replicas, roles = spec.get(REPLICAS[kind]), ROLES[kind]
    if not isinstance(replicas, dict) or not replicas:
        yield ObjectFault(at, f"A {kind} needs {REPLICAS[kind]} with {' and '.join(roles)}.")
        return
    if (needed := NEEDED_ROLE.get(kind)) and needed not in replicas:
        yield ObjectFault((*at, needed), f"A {kind} needs a {needed}.")
    for role, each in replicas.items():
        if role not in roles:
            yield ObjectFault((*at, role), f"A {kind} has {' and '.join(roles)} alone.{nearest(role, roles)}")
        elif isinstance(each, dict):
            yield from _template(each, (*at, role), restarts=RESTARTS)
        else:
            yield ObjectFault((*at, role), "Must be a mapping with replicas and template.")

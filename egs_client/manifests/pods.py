# `make client` writes this file. Do not edit it.
"""Finds the parts of a pod that Pod Security `restricted` refuses; every namespace of a workspace enforces it. Source: the Pod Security
Standards of Kubernetes.

A pod that a controller makes is refused where nobody looks, so a manifest is checked before it is filed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from egs_client.manifests.objects import ObjectFault

VOLUMES: Final = frozenset({"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"})
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def security_faults(manifest: Any) -> Iterator[ObjectFault]:
    """Return the faults of the pods that the object would have."""
    for path, pod in _pods(manifest, ()):
        yield from _faults(pod, path)


def _pods(part: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    if isinstance(part, dict):
        if isinstance(part.get("containers"), list):
            yield path, part
        for name, inner in part.items():
            yield from _pods(inner, (*path, name))
    elif isinstance(part, list):
        for place, inner in enumerate(part):
            yield from _pods(inner, (*path, place))


def _faults(pod: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[ObjectFault]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield ObjectFault((*path, field), f"Pods of a workspace may not have {field}.")
    for place, volume in _dicts(pod.get("volumes")):
        if kinds := sorted(set(volume) - {"name"} - VOLUMES):
            text = f"A volume of a workspace's pod may not be of kind {kinds[0][:60]}."
            yield ObjectFault((*path, "volumes", place, kinds[0]), text)
    for field in CONTAINERS:
        for place, container in _dicts(pod.get(field)):
            for must in _container_faults(container, _dict(pod.get("securityContext"))):
                yield ObjectFault((*path, field, place), f"Container {str(container.get('name'))[:63]} must have {must}.")


def _container_faults(container: dict[str, Any], of_pod: dict[str, Any]) -> Iterator[str]:
    own = _dict(container.get("securityContext"))
    both = {**of_pod, **own}
    capabilities = _dict(own.get("capabilities"))
    if own.get("privileged"):
        yield "no securityContext.privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "securityContext.allowPrivilegeEscalation: false"
    if "ALL" not in _list(capabilities.get("drop")) or set(map(str, _list(capabilities.get("add")))) - {"NET_BIND_SERVICE"}:
        yield "securityContext.capabilities: {drop: [ALL]}"
    if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
        yield "runAsNonRoot: true in its securityContext or its pod's, and not user 0"
    if _dict(both.get("seccompProfile")).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile: {type: RuntimeDefault} in its securityContext or its pod's"
    if any(port.get("hostPort") for _, port in _dicts(container.get("ports"))):
        yield "no hostPort"


def _list(part: Any) -> list[Any]:
    return part if isinstance(part, list) else []


def _dict(part: Any) -> dict[str, Any]:
    return part if isinstance(part, dict) else {}


def _dicts(part: Any) -> list[tuple[int, dict[str, Any]]]:
    return [(place, each) for place, each in enumerate(_list(part)) if isinstance(each, dict)]

"""Finds the parts of a pod that Pod Security `restricted` refuses; every namespace of a workspace enforces it. Source: the Pod Security
Standards of Kubernetes.

A pod that a controller makes is refused where nobody looks, so a manifest is checked before it is filed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

VOLUMES: Final = frozenset({"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"})
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def pods_fault(manifest: Any) -> str:
    """Return the first fault of the pods that the object would have, as a sentence, or ""."""
    return next((fault for pod in _pods(manifest) for fault in _faults(pod)), "")


def _pods(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if isinstance(part.get("containers"), list):
            yield part
        for inner in part.values():
            yield from _pods(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _pods(inner)


def _faults(pod: dict[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"Pods of a workspace may not have {field}."
    for volume in _dicts(pod.get("volumes")):
        if kinds := sorted(set(volume) - {"name"} - VOLUMES):
            yield f"A volume of a workspace's pod may not be of kind {kinds[0][:60]}."
    for container in (each for field in CONTAINERS for each in _dicts(pod.get(field))):
        for must in _container_faults(container, _dict(pod.get("securityContext"))):
            yield f"Container {str(container.get('name'))[:63]} must have {must}."


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
    if _dict(both.get("seccompProfile")).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "seccompProfile: {type: RuntimeDefault} in its securityContext or its pod's"
    if any(port.get("hostPort") for port in _dicts(container.get("ports"))):
        yield "no hostPort"


def _list(part: Any) -> list[Any]:
    return part if isinstance(part, list) else []


def _dict(part: Any) -> dict[str, Any]:
    return part if isinstance(part, dict) else {}


def _dicts(part: Any) -> list[dict[str, Any]]:
    return [each for each in _list(part) if isinstance(each, dict)]

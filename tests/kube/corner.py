"""Many tests share a cluster at once. Each has a corner with an agent that sees this corner alone and keeps its state there.

All that a corner has bears its key, in its own name or in that of its namespace, node or workspace. The rest of the cluster is kept from
the agent. The agent sees what the API server answers, and what it writes is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from protocol import cluster_names
from tests.kube.wire import Object
from worker_agent.kube.api.client import Access, Api, Params, StreamLines
from worker_agent.kube.driver import STATE_PATH

# What agents list and watch in the whole cluster.
OF_JOBS: Final = ("jobs", "services", "deployments", "statefulsets")
OF_EGS: Final = ("gpuprovisioningrequests", "gpujobs", "gprtemplates")
KINDS: Final = ("nodes", "pods", "namespaces", *OF_EGS, "networkpolicies", "rolebindings", *OF_JOBS)
STATES: Final[Object] = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update"]}


class CornerAccess(Access, frozen=True, kw_only=True):
    """An empty `key` means the whole cluster."""

    key: str = ""


class CornerApi(Api):
    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._key = access.key.encode() if isinstance(access, CornerAccess) else b""

    @contextmanager
    def stream(self, path: str, params: Params, *, silence_s: float) -> Iterator[StreamLines]:
        with super().stream(path, params, silence_s=silence_s) as lines:
            yield _CornerLines(lines, self._key) if self._key and _is_of_all(path) else lines

    def _call(self, method: str, path: str, **how: Any) -> bytes:
        if not self._key:
            return super()._call(method, path, **how)
        if path == STATE_PATH:
            path, how["body"] = _own_state(self._key.decode(), how.get("body"))
            return super()._call(method, path, **how)
        answer = super()._call(method, path, **how)
        if path == cluster_names.GUARD_PATH:
            return _own_nodes(answer, self._key.decode())
        return _own_items(answer, self._key) if method == "GET" and _is_of_all(path) else answer


class _CornerLines(StreamLines):
    def __init__(self, lines: StreamLines, key: bytes) -> None:
        self._lines, self._key = lines, key

    def __iter__(self) -> Iterator[bytes]:
        return (line for line in self._lines if self._key in line or line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')))

    def cut(self) -> None:
        self._lines.cut()


def _is_of_all(path: str) -> bool:
    """Says whether it is of the whole cluster, not of one namespace, but for that of all accounts."""
    is_kind = path.rpartition("/")[2] in KINDS and (path.endswith("/namespaces") or "/namespaces/" not in path)
    return is_kind or path == f"/api/v1/namespaces/{cluster_names.ACCOUNTS}/serviceaccounts"


def _own_items(answer: bytes, key: bytes) -> bytes:
    page = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
    items = msgspec.json.decode(page.get("items", b"[]"), type=list[msgspec.Raw] | None)
    return msgspec.json.encode({**page, "items": [item for item in items or () if key in bytes(item)]})


def _own_nodes(guard: bytes, key: str) -> bytes:
    read = json.loads(guard)
    if "spec" in read:
        read["spec"]["nodes"] = {node: value for node, value in read["spec"]["nodes"].items() if key in node}
    return msgspec.json.encode(read)


def state_of(key: str) -> str:
    """Returns the name of the Secret of that corner's agent."""
    return f"{STATE_PATH.rpartition('/')[2]}-{key}"


def _own_state(key: str, body: bytes | None) -> tuple[str, bytes | None]:
    """Returns path and body of the corner's own state."""
    path = f"{STATE_PATH.rpartition('/')[0]}/{state_of(key)}"
    if body is None:
        return path, None
    written = json.loads(body)
    return path, msgspec.json.encode({**written, "metadata": {**written["metadata"], "name": state_of(key)}})


def agents_may_keep_their_states() -> list[Object]:
    """The agent may write by its own rights the one state document that the install made."""
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "test-corners", "namespace": cluster_names.NAMESPACE}}
    subject = {"kind": "ServiceAccount", "name": cluster_names.AGENT, "namespace": cluster_names.NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "test-corners"}
    return [{**about, "kind": "Role", "rules": [STATES]}, {**about, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}]

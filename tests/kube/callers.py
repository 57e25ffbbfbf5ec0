"""Callers of one API server, each with credentials of its own, who see each answer as it is: the client for attacks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.kube.cluster import MUTATING, Cluster, Object
from tests.kube.wire import APPLY, JSON_PATCH, tls_of, url_of
from tests.kube.written import gated

DONE: Final = "done"
WANTS_GATE: Final = "a pod that asks for GPUs must carry the scheduling gate egs.io/gpr"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Object
    headers: httpx.Headers = field(default_factory=httpx.Headers)

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def outcome(self) -> str:
        """`done`; else who refused: a policy's name, RBAC, PodSecurity, or the status code of any other."""
        if self.status < 300:
            return DONE
        if policy := re.search(r"ValidatingAdmissionPolicy '([^']+)'", self.message):
            return policy[1]
        if "violates PodSecurity" in self.message:
            return "PodSecurity"
        # The last is what old ones say to an apply without the right to create.
        if self.status == 403 and re.search(r" cannot [\w:-]+ (resource|path) | not currently held| is forbidden: $", self.message):
            return "RBAC"
        return str(self.status)


class Caller:
    """One who is known by a client certificate (`who`: a name of the cluster's folder) or by a bearer token."""

    def __init__(self, cluster: Cluster, *, who: str = "admin", token: str = "") -> None:
        self.cluster = cluster
        tls = tls_of(cluster.folder, "" if token else who)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(base_url=url_of(cluster.kubeconfig), verify=tls, headers=headers, timeout=30, trust_env=False)

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        """Calls `ask`. Where the cluster adds no gate and refuses a pod without it, this tries again with the gate."""
        answer = self.ask(method, path, body, **more)
        if answer.message.endswith(WANTS_GATE) and not self.cluster.has(MUTATING):
            return self.ask(method, path, gated(body), **more)
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        is_dry: bool = True,
        user: str = "",
        group: str = "",
        **params: Any,
    ) -> Answer:
        """Sends the call once, as it is. A dry run passes all admission and changes nothing. It impersonates `user` and `group`."""
        posing = {"Impersonate-User": user, "Impersonate-Group": group}
        headers = {"Content-Type": kind} | {key: value for key, value in posing.items() if value}
        dry = {"dryRun": "All"} if is_dry and method != "GET" else {}
        owner = {"fieldManager": "test", "force": "true"} if kind == APPLY else {}
        content = None if body is None else json.dumps(body)
        answer = self._client.request(method, path, content=content, headers=headers, params={**dry, **owner, **params})
        try:
            return Answer(answer.status_code, dict(answer.json()), answer.headers)
        except ValueError:
            return Answer(answer.status_code, {"message": answer.text}, answer.headers)

    def get(self, path: str, **params: Any) -> Object:
        answer = self.call("GET", path, **params)
        assert answer.outcome == DONE, answer.message
        return answer.body

    def make(self, path: str, body: Object) -> Object:
        """Writes for good. Raises AssertionError with the refusal where it may not."""
        answer = self.call("POST", path, body, is_dry=False)
        assert answer.outcome == DONE, answer.message
        return answer.body

    def patch(self, path: str, ops: Any, *, kind: str = JSON_PATCH) -> Object:
        """Writes for good. Raises AssertionError with the refusal where it may not."""
        answer = self.call("PATCH", path, ops, kind=kind, is_dry=False)
        assert answer.outcome == DONE, answer.message
        return answer.body

    def close(self) -> None:
        self._client.close()

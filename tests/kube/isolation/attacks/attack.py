"""Defines an attack, and the calls that most attacks consist of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.kube.callers import DONE, Answer, Caller
from tests.kube.cluster import RESIZE, Cluster, Object
from tests.kube.wire import JSON_PATCH
from tests.kube.world import NODE_BLUE, is_gated, pod, pods_path

TRIES, CONFLICT = 5, 409
ALL, WITH_BOX = "uaons", "uaon"  # who tries: everybody, or those whose namespace has a pod that runs on GPUs


@dataclass(frozen=True, slots=True)
class Attacker:
    """It says who attacks and where.

    Both namespaces have the pods `gated` and `cpu` and the claim `claim`; `mine`, on GPUs, is in `red` alone.
    """

    caller: Caller
    namespace: str

    def pod(self, name: str, sub: str = "") -> str:
        return pods_path(self.namespace, name, sub)

    def seen(self, name: str) -> Object:
        return self.caller.get(self.pod(name))

    def create(self, body: Object) -> Answer:
        return self.caller.call("POST", pods_path(self.namespace), body)

    def make(self, path: str, body: Object) -> Answer:
        return self.caller.call("POST", path.format(namespace=self.namespace), body)

    def patch(self, name: str, ops: Any, *, sub: str = "", kind: str = JSON_PATCH) -> Answer:
        return self.caller.call("PATCH", self.pod(name, sub), ops, kind=kind)

    def put(self, name: str, change: Callable[[Object], Any], *, sub: str = "") -> Answer:
        """Reads the pod, changes it and sends it whole; where the cluster wrote meanwhile, it reads again."""
        for _ in range(TRIES):
            body = self.seen(name)
            change(body)
            answer = self.caller.call("PUT", self.pod(name, sub), body)
            if answer.status != CONFLICT:
                break
        return answer


Act = Callable[[Attacker], Answer]


def accepted(_: Object) -> str:
    return DONE


def gated(body: Object) -> str:
    return "gated" if is_gated(body) else DONE


@dataclass(frozen=True, slots=True)
class Attack:
    tries: str
    act: Act
    ends: dict[str, str]  # how, by those who try; where servers differ "this|that"
    opens: bool = False  # it does harm where the validating policies are off
    reads: Callable[[Object], str] = accepted  # what it came to, where the answer is no refusal
    without: tuple[str, dict[str, str]] | None = None  # how it ends on a server that has not this (Cluster.has)

    def outcome(self, attacker: Attacker) -> str:
        answer = self.act(attacker)
        return self.reads(answer.body) if answer.outcome == DONE else answer.outcome

    def end(self, who: str) -> str:
        """Returns how the attempt of this attacker ends on a server with all features, or "" if he does not try."""
        return next((end for people, end in self.ends.items() if who in people), "")

    def expected(self, cluster: Cluster) -> dict[str, set[str]]:
        what, instead = self.without or ("", self.ends)
        ends = self.ends if cluster.has(what) else instead
        return {who: set(end.split("|")) for people, end in ends.items() for who in people if self.end(who)}


EVERYONE_BY_POD: Final = {ALL: "egs-pod"}
STATUS: Final = {"ua": "RBAC", "ons": "egs-status"}
ONLY_BY_ROLE: Final = {ALL: "RBAC"}
NO_RESIZE: Final = RESIZE, {"a": "RBAC", "uons": "404"}


def creating(name: str = "try", gpus: int | str | None = None, *, metadata: Object | None = None, **spec: Any) -> Act:
    return lambda attacker: attacker.create(pod(name, gpus, metadata=metadata, **spec))


def patching(name: str, ops: Any, *, sub: str = "", kind: str = JSON_PATCH) -> Act:
    return lambda attacker: attacker.patch(name, ops, sub=sub, kind=kind)


def posting(path: str, body: Object) -> Act:
    return lambda attacker: attacker.make(path, body)


def calling(method: str, path: str, body: Any = None, **more: Any) -> Act:
    return lambda attacker: attacker.caller.call(method, path.format(namespace=attacker.namespace), body, **more)


def deleting(path: str, **options: Any) -> Act:
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **options}
    return lambda by: by.caller.call("DELETE", path.format(namespace=by.namespace), body)


def binding(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": NODE_BLUE}}


def eviction(name: str, grace_s: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": {"gracePeriodSeconds": grace_s, "dryRun": ["All"]},
    }

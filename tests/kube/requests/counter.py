"""A namespace in which people make requests, an agent that carries them, and a hub that answers as a test says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from protocol import cluster_names
from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.tenancy.cluster_requests import (
    AutoTemplate,
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestSpec,
    ClusterRequestState,
    ClusterRequestVerdict,
)
from protocol.tenancy.workspaces import Binding, Workspace
from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S, Cluster, Object
from tests.kube.corner import CornerApi
from tests.kube.site import access_as_agent
from tests.kube.written import written
from worker_agent.clock import SystemClock
from worker_agent.hub.requests import HubNews, RequestExchange
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.mirror import Mirror
from worker_agent.kube.api.objects import Node, Pod
from worker_agent.kube.requests.sync import KubernetesRequests

SPEC: Object = {"shape": "H100-80GB", "nodes": 2, "duration": "8h30m"}
Answer = Callable[[ClusterRequest], ClusterRequestAnswer]


def taken(claim: ClusterRequest) -> ClusterRequestAnswer:
    return ClusterRequestAnswer(
        uid=claim.uid, generation=claim.generation, verdict=ClusterRequestVerdict.TAKEN, gpr_id=f"gpr-{claim.uid[:8]}"
    )


def refused(reason: str, message: str, *, gpr_id: str = "") -> Answer:
    return lambda claim: ClusterRequestAnswer(
        uid=claim.uid, generation=claim.generation, verdict=ClusterRequestVerdict.REFUSED, reason=reason, message=message, gpr_id=gpr_id
    )


def later(message: str) -> Answer:
    return lambda claim: ClusterRequestAnswer(
        uid=claim.uid, generation=claim.generation, verdict=ClusterRequestVerdict.LATER, message=message
    )


def request(name: str = "train", **spec: Any) -> Object:
    return {"apiVersion": "egs.io/v1alpha1", "kind": "GPUProvisioningRequest", "metadata": {"name": name}, "spec": spec or SPEC}


def template(name: str = "standard", **spec: Any) -> Object:
    return {"apiVersion": "egs.io/v1alpha1", "kind": "GPRTemplate", "metadata": {"name": name}, "spec": spec or SPEC}


@dataclass(slots=True)
class Counter:
    """It stands for the hub.

    `told` has all claims that came to it, and `answer` what it says to each. Its list has what it took, as `state` made it last.
    """

    cluster: Cluster
    key: str = field(default_factory=lambda: uuid4().hex[:8])
    namespace: str = ""
    slice_id: str = field(default_factory=lambda: str(uuid4()))
    answer: Answer = taken
    told: list[ClusterRequest] = field(default_factory=list)
    states: dict[str, ClusterRequestState] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    auto: ClusterRequestSpec | None = None  # what the hub's template for pods that wait says
    is_settled: bool = True
    is_away: bool = False
    is_forgetful: bool = False  # what it takes has ended long ago
    notes: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    nodes: tuple[Node, ...] = ()  # that the agent sees
    others: list[Pod] = field(default_factory=list)  # pods that it sees beside those of the cluster
    api: Api = field(init=False)
    pods: Mirror[Pod] = field(init=False)
    exchange: RequestExchange = field(init=False)
    agent: KubernetesRequests = field(init=False)

    def __post_init__(self) -> None:
        self.namespace = self.namespace or f"ns-{self.key}"
        labels = {cluster_names.SLICE: self.slice_id, "pod-security.kubernetes.io/enforce": "restricted"}
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}})
        self.bound[self.namespace] = self.slice_id
        self.start()

    def start(self) -> None:
        """A fresh agent: it has only what the objects say."""
        self.api, self.exchange = CornerApi(access_as_agent(self.cluster, key=self.key)), RequestExchange(SystemClock())
        self.pods = Mirror(api=self.api, path="/api/v1/pods", type_=Pod, note=self.note)
        self.pods.start()
        self.agent = KubernetesRequests(
            api=self.api,
            bound=lambda name: self.bound.get(name, ""),
            pods=lambda: [*self.pods.objects().values(), *self.others],
            nodes=lambda: self.nodes,
            why=lambda pod: f"Waits for {self.agent.waited_for(pod) or 'GPUs'}.",
            note=self.note,
        )
        self.agent.watch(lambda: None)
        assert self.pods.wait_whole(SOON_S)

    def stop(self) -> None:
        self.agent.stop()
        self.pods.stop()
        self.api.close()

    def leave(self) -> None:
        self.stop()
        self.cluster.clear(self.namespace)

    def note(self, event: str, fields: dict[str, object]) -> None:
        self.notes.append((event, fields))

    def noted(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.notes if name == event]

    # -- the hub -------------------------------------------------------------------------------------------------------

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        bindings = tuple(Binding(namespace=name) for name in self.bound)
        return (Workspace(id=self.slice_id, name="vision", bindings=bindings),)

    def pass_(self) -> HubNews:
        """One look of the agent, and one exchange with the hub."""
        if not self.is_away:
            self._sync()
        news = self.exchange.collect(self.workspaces if self.is_settled else None)
        self.exchange.put(self.agent.look(news))
        if not self.is_away:
            batch = self.exchange.batch()
            self.told += batch
            answers = tuple(self.answer(claim) for claim in batch)
            for claim, answer in zip(batch, answers, strict=True):
                if answer.verdict is ClusterRequestVerdict.TAKEN and not self.is_forgetful:
                    self._take(claim, answer.gpr_id)
            self.exchange.take_answers(batch, answers)
        return news

    def _take(self, claim: ClusterRequest, gpr_id: str) -> None:
        new = ClusterRequestState(id=claim.uid, gpr_id=gpr_id, state="QUEUED", is_auto=claim.is_auto, position=1, message="It waits.")
        state = self.states.setdefault(claim.uid, new)
        if claim.is_gone or claim.spec.early_release:
            self.states[claim.uid] = msgspec.structs.replace(state, state="CANCELED", is_ended=True, position=None)

    def _sync(self) -> None:
        states = tuple(self.states.values())
        templates = (AutoTemplate(id=self.slice_id, name="of-the-hub", spec=self.auto),) if self.auto else ()
        now = time.time()
        asked_mono = time.monotonic()
        reply = SyncReply(
            hub_id="h",
            session_epoch=1,
            received_s=now,
            sent_s=now,
            lease_ttl_s=45.0,
            generation=1,
            count=0,
            digest="",
            assignments=None,
            claims=states,
            claims_digest=set_digest(states),
            templates=templates,
            templates_digest=set_digest(templates),
        )
        asked = SyncRequest(session_epoch=1, boot_id="b", have_templates="")
        self.exchange.take(asked, reply, asked_mono=asked_mono)

    def state(self, name: str = "train", **changes: Any) -> None:
        uid = self.uid(name)
        self.states[uid] = msgspec.structs.replace(self.states[uid], **changes)

    # -- what is there -------------------------------------------------------------------------------------------------

    def make(self, *objects: Object) -> None:
        self.cluster.create(*(written(self.cluster, body) for body in objects), namespace=self.namespace)

    def change(self, spec: Object, name: str = "train") -> None:
        self.patch("gpr", name, {"spec": spec})

    def patch(self, kind: str, name: str, patch: Object) -> None:
        self.cluster.patch(kind, name, patch, namespace=self.namespace)

    def delete(self, kind: str, name: str, *, waits: bool = True) -> None:
        self.cluster.delete(kind, name, namespace=self.namespace, waits=waits)

    def scale(self, name: str, replicas: int) -> None:
        self.cluster.scale(name, replicas, namespace=self.namespace)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, given=given)

    def found(self, name: str = "train", kind: str = "gpr") -> Object:
        found = self.cluster.get(kind, name, namespace=self.namespace)
        assert found is not None
        return found

    def uid(self, name: str = "train") -> str:
        return str(self.found(name)["metadata"]["uid"])

    def status(self, name: str = "train", kind: str = "gpr") -> Object:
        return dict(self.found(name, kind).get("status", {}))

    def condition(self, type_: str, name: str = "train", kind: str = "gpr") -> tuple[str, str]:
        """Its status and reason; empty while there is none."""
        conditions = self.status(name, kind).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == type_), ("", ""))

    def claims(self, name: str = "train") -> list[ClusterRequest]:
        return [claim for claim in self.told if claim.name == name and claim.namespace == self.namespace]

    def until(self, what: str, holds: Callable[[], Any], *, within_s: float = SOON_S) -> Any:
        def look() -> Any:
            self.pass_()
            return holds()

        return wait_for(f"{what} (notes: {self.notes[-3:]})", look, within_s=within_s)

    def until_condition(self, type_: str, status: str, reason: str, name: str = "train") -> None:
        self.until(f"{type_} {status} {reason}", lambda: self.condition(type_, name) == (status, reason))

    def for_a_while(self, seconds: float = 1.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.pass_()
            time.sleep(0.05)

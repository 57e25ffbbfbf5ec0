"""A workspace whose namespace is ready, and an agent that claims the objects in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from accounts.models import User
from gpr.models import Gpr
from inventory.models import Cluster
from protocol.cluster_names import ACCOUNTS
from protocol.tenancy.cluster_requests import (
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestSpec,
    ClusterRequestState,
    ClusterRequestVerdict,
)
from slices.models import Kubeconfig, KubeconfigState, Slice
from tests.builders import NOW, SHAPE, make_cluster, make_slice, make_user
from tests.inventory.agent import Agent
from tests.lifecycle.stage import ENTRY, EXIT, Stage
from tests.slices.kubeconfigs import made, ready_namespace

ADMIN_OF_THE_CLUSTER = "kubernetes-admin"


def asks(**changes: Any) -> ClusterRequestSpec:
    return ClusterRequestSpec(**{"nodes": 1, "duration": "1h", "shape": SHAPE, **changes})


def claim(name: str = "train", *, namespace: str = "train", generation: int = 1, uid: str = "", **changes: Any) -> ClusterRequest:
    """`changes`: of what it asks for, or of the claim itself. Its uid is named after it."""
    own: dict[str, Any] = {key: changes.pop(key) for key in ("requester", "is_auto", "template", "is_gone") if key in changes}
    given: dict[str, Any] = {"requester": ADMIN_OF_THE_CLUSTER, **own}
    return ClusterRequest(uid=uid or f"uid-{name}", namespace=namespace, name=name, generation=generation, spec=asks(**changes), **given)


def gone(name: str = "train") -> ClusterRequest:
    """Returns what an agent says that has never seen the object."""
    return ClusterRequest(uid=f"uid-{name}", namespace="", name="", is_gone=True)


class ClusterRequestStage(Stage):
    def __init__(self, *, nodes: int = 2) -> None:
        super().__init__(nodes=nodes)
        ready_namespace(self.slice, self.cluster, at=self.now)

    def claims(self, *claims: ClusterRequest) -> tuple[ClusterRequestAnswer, ...]:
        return self.agent.claims(*claims, at=self.now)

    def claim(self, *arguments: Any, **changes: Any) -> ClusterRequestAnswer:
        (answer,) = self.claims(claim(*arguments, **changes))
        return answer

    def filed(self, *arguments: Any, **changes: Any) -> Gpr:
        answer = self.claim(*arguments, **changes)
        assert answer.verdict == ClusterRequestVerdict.TAKEN, answer
        return Gpr.objects.select_related("slice", "owner").get(pk=answer.gpr_id)

    def opened(self, *arguments: Any, **changes: Any) -> Gpr:
        """Files a request as an object; its box starts and opens."""
        gpr = self.filed(*arguments, **changes)
        self.open(gpr)
        return gpr

    def open(self, gpr: Gpr) -> None:
        self.tick()
        self.say(gpr, *ENTRY)
        self.tick()
        gpr.refresh_from_db()

    def leave(self, gpr: Gpr) -> None:
        """Its agent has taken the nodes back."""
        self.say(gpr, *EXIT)
        self.tick()
        gpr.refresh_from_db()

    def states(self) -> dict[str, ClusterRequestState]:
        """Returns what the agent is told, by uid."""
        reply = self.agent.sync(at=self.now)
        assert reply.claims is not None
        return {state.id: state for state in reply.claims}

    def kubeconfig(self, user: User, *, state: KubeconfigState = KubeconfigState.GIVEN) -> str:
        """Makes a kubeconfig of his and returns its account by the cluster's name."""
        row = made(self.slice, self.cluster, user, at=self.now)
        Kubeconfig.objects.filter(pk=row.pk).update(state=state, token="")
        return account(row)


def account(row: Kubeconfig) -> str:
    return f"system:serviceaccount:{ACCOUNTS}:egs-{row.pk}"


def neighbor(stage: ClusterRequestStage, *, namespace: str = "theirs") -> tuple[Slice, User]:
    """Makes another workspace in the same cluster."""
    user = make_user()
    slice_ = make_slice(stage.cluster, name="canary", owner=user, at=stage.now)
    ready_namespace(slice_, stage.cluster, at=stage.now, name=namespace)
    return slice_, user


def other_cluster(at: datetime = NOW) -> tuple[Cluster, Agent]:
    cluster = make_cluster(nodes=1, is_heard=False, at=at)
    return cluster, Agent.joined(cluster, at=at)

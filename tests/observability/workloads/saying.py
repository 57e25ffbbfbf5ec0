"""Pods as an agent tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from core.clock import db_now
from gpr.models import Gpr
from inventory.models import AgentSession, Cluster, Reservation, ReservationState
from inventory.services.agents import AgentIdentity
from observability.workloads.services import pods_store
from protocol.pods import PodOwner, PodSeen, PodsReply, PodsRequest

JOB = PodOwner(api="batch/v1", kind="Job", name="train-worker", uid="uid-job")
JOB_SET = PodOwner(api="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="train", uid="uid-jobset")
GATED: Any = {"hold": "gate", "why": "Waits for GPUs.", "phase": "Pending"}


def seen(name: str, namespace: str, *, owners: Sequence[PodOwner] = (JOB, JOB_SET), **fields: Any) -> PodSeen:
    given = {"uid": f"uid-{namespace}-{name}", "phase": "Running", "gpu_count": 1, **fields}
    return PodSeen(name=name, namespace=namespace, owners=tuple(owners), **given)


def pods_of(gpr: Gpr, namespace: str, **fields: Any) -> list[PodSeen]:
    """Makes a pod on each of its nodes, with all of the box's GPUs there."""
    rows = Reservation.objects.filter(gpr=gpr, state=ReservationState.HELD).select_related("node").prefetch_related("gpus__gpu")
    found = []
    for rank, row in enumerate(rows.order_by("node__name")):
        gpus = tuple(sorted(reserved.gpu.uuid for reserved in row.gpus.all()))
        own = {"gpr_id": str(gpr.pk), "node": row.node.name, "gpu_count": len(gpus), "gpus": gpus, "rank": rank, "role": "worker"}
        found.append(seen(f"{gpr.name}-{rank}", namespace, **{**own, **fields}))
    return found


def tell(
    cluster: Cluster, *pods: PodSeen, gone: Sequence[str] = (), there: Sequence[str] | None = None, at: datetime | None = None
) -> PodsReply:
    session_epoch = AgentSession.objects.get(cluster=cluster).session_epoch
    message = PodsRequest(session_epoch=session_epoch, pods=pods, gone=tuple(gone), there=None if there is None else tuple(there))
    return pods_store(agent=AgentIdentity(cluster, 1), message=message, now=at or db_now())

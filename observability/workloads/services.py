"""Stores what agents tell of pods, grouped by workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Min, Q, Sum

from core.locks import transaction_lock
from core.rest.references import id_of
from core.written_sql import rows_update
from gpr.models import Gpr
from inventory.models import AgentSession, Cluster, Gpu
from inventory.services.agents import AgentIdentity, session_check
from journal.hints import hint, slice_topic
from observability.workloads.configuration import configuration_of, framework_of, model_of
from observability.workloads.models import Pod, Workload, WorkloadState
from protocol.pods import PodOwner, PodSeen, PodsReply, PodsRequest
from slices.models import Namespace

POD_KEPT, WORKLOAD_KEPT = timedelta(days=1), timedelta(days=14)  # after their end
AHEAD_MOST: Final = timedelta(seconds=10)
POD_FIELDS: Final = (
    *("workload", "name", "created_at", "started_at", "gone_at", "phase", "hold", "why", "gpr", "node", "gpu_count", "gpus", "requests"),
    *("image", "role", "rank", "restarts"),
)
SAID_FIELDS: Final = ("api", "kind", "name", "model", "framework", "config")
Key = tuple[UUID, str, str]  # workspace, namespace and UID of the owner


@transaction.atomic
def pods_store(*, agent: AgentIdentity, message: PodsRequest, now: datetime) -> PodsReply:
    """Takes any message again. Raises AgentSuperseded."""
    cluster = agent.cluster
    transaction_lock(f"egs.pods.{cluster.pk}")  # an agent may repeat a call that is still at work
    session_check(AgentSession.objects.get(pk=cluster.pk), message.session_epoch)
    slice_of = dict(Namespace.objects.filter(cluster=cluster).values_list("name", "slice_id"))
    seen = [pod for pod in message.pods if pod.namespace in slice_of]
    touched = _workloads_of([pod.uid for pod in seen], cluster)
    workloads = _workloads_store(seen, slice_of, cluster, now)
    _pods_store(seen, workloads, slice_of, cluster, now)
    touched |= {workload.pk for workload in workloads.values()} | _pods_end(message, cluster, now)
    workloads_count(touched, now=now)
    return PodsReply(refused=len(message.pods) - len(seen), again=_is_any_unknown(message, slice_of, cluster))


def workloads_prune(*, now: datetime) -> None:
    Pod.objects.filter(gone_at__lt=now - POD_KEPT).delete()
    Workload.objects.filter(ended_at__lt=now - WORKLOAD_KEPT).delete()


def workloads_count(ids: Iterable[UUID], *, now: datetime) -> None:
    """Bring the figures of these workloads up to date with their pods."""
    runs, waits = Q(pods__gone_at=None, pods__hold="") & ~Q(pods__node=""), Q(pods__gone_at=None) & (~Q(pods__hold="") | Q(pods__node=""))
    rows = Workload.objects.filter(pk__in=ids).annotate(
        running=Count("pods", filter=runs),
        waiting=Count("pods", filter=waits),
        held=Sum("pods__gpu_count", filter=runs, default=0),
        asked=Sum("pods__gpu_count", filter=waits, default=0),
        first_at=Min("pods__created_at"),
    )
    changed: list[Workload] = []
    for row in rows:
        state = WorkloadState.RUNNING if row.running else WorkloadState.WAITING if row.waiting else WorkloadState.ENDED
        figures = {
            "state": state,
            "pods_running": row.running,
            "pods_waiting": row.waiting,
            "gpus_held": row.held,
            "gpus_asked": row.asked,
            "ended_at": (row.ended_at or now) if state == WorkloadState.ENDED else None,
        }
        if any(getattr(row, name) != value for name, value in figures.items()):
            for name, value in figures.items():
                setattr(row, name, value)
            changed.append(row)
    if changed:
        rows_update(changed, list(figures))
        hint(*{slice_topic(row.slice_id) for row in changed})


def _workloads_of(uids: Sequence[str], cluster: Cluster) -> set[UUID]:
    """Returns the workloads of pods as stored before: a pod may get another owner."""
    return set(Pod.objects.filter(cluster=cluster, uid__in=uids).values_list("workload_id", flat=True))


def _top(pod: PodSeen) -> PodOwner:
    return pod.owners[-1] if pod.owners else PodOwner(api="v1", kind="Pod", name=pod.name, uid=pod.uid)


def _key(pod: PodSeen, slice_of: Mapping[str, UUID]) -> Key:
    return slice_of[pod.namespace], pod.namespace, _top(pod).uid


def _workloads_store(seen: Sequence[PodSeen], slice_of: Mapping[str, UUID], cluster: Cluster, now: datetime) -> dict[Key, Workload]:
    # The pod with most GPUs speaks for all, and of these the first: a launcher says less than its workers.
    speakers: dict[Key, PodSeen] = {}
    for pod in sorted(seen, key=lambda pod: (-pod.gpu_count, pod.rank or 0, pod.name)):
        speakers.setdefault(_key(pod, slice_of), pod)
    known = _known(cluster, speakers)
    rows = [_workload(key, speakers[key], cluster, now) for key in sorted(speakers)]
    changed = [row for row in rows if _says_more(row, known.get((row.slice_id, row.namespace, row.uid)))]
    if changed:
        Workload.objects.bulk_create(
            changed, update_conflicts=True, unique_fields=["slice", "cluster", "namespace", "uid"], update_fields=SAID_FIELDS
        )
        known = _known(cluster, speakers)
    return known


def _known(cluster: Cluster, keys: Iterable[Key]) -> dict[Key, Workload]:
    stored = Workload.objects.filter(cluster=cluster, uid__in={uid for _, _, uid in keys})
    return {(row.slice_id, row.namespace, row.uid): row for row in stored}


def _says_more(row: Workload, known: Workload | None) -> bool:
    """An earlier message may have brought a pod with more GPUs."""
    if known is None:
        return True
    is_less = row.config["gpus"] < known.config.get("gpus", 0)
    return not is_less and any(getattr(row, name) != getattr(known, name) for name in SAID_FIELDS)


def _workload(key: Key, pod: PodSeen, cluster: Cluster, now: datetime) -> Workload:
    slice_id, namespace, uid = key
    top = _top(pod)
    return Workload(
        slice_id=slice_id,
        cluster=cluster,
        namespace=namespace,
        uid=uid,
        api=top.api,
        kind=top.kind,
        name=top.name,
        created_at=_moment(pod.created_s, now) or now,
        model=model_of(pod),
        framework=framework_of(pod),
        config=configuration_of(pod),
    )


def _pods_store(
    seen: Sequence[PodSeen], workloads: Mapping[Key, Workload], slice_of: Mapping[str, UUID], cluster: Cluster, now: datetime
) -> None:
    gprs = _gprs_of(seen, slice_of)
    gpus = {uuid: str(pk) for uuid, pk in _gpus_of(seen, cluster)}
    rows = {pod.uid: _pod(pod, workloads[_key(pod, slice_of)], cluster, now) for pod in seen}
    for pod in seen:
        row, gpr_id = rows[pod.uid], id_of(pod.gpr_id)
        row.gpr_id = gpr_id if gpr_id and gprs.get(gpr_id) == slice_of[pod.namespace] else None
        row.gpus = [gpus[uuid] for uuid in pod.gpus if uuid in gpus]
    Pod.objects.bulk_create(
        [rows[uid] for uid in sorted(rows)], update_conflicts=True, unique_fields=["cluster", "uid"], update_fields=POD_FIELDS
    )
    carried = {(row.workload_id, row.gpr_id) for row in rows.values() if row.gpr_id}
    through = Workload.gprs.through
    through._default_manager.bulk_create(
        (through(workload_id=workload_id, gpr_id=gpr_id) for workload_id, gpr_id in sorted(carried)), ignore_conflicts=True
    )


def _pod(pod: PodSeen, workload: Workload, cluster: Cluster, now: datetime) -> Pod:
    return Pod(
        workload=workload,
        cluster=cluster,
        uid=pod.uid,
        name=pod.name,
        created_at=_moment(pod.created_s, now) or now,
        started_at=_moment(pod.started_s, now),
        phase=pod.phase,
        hold=pod.hold,
        why=pod.why,
        node=pod.node or "",
        gpu_count=pod.gpu_count,
        requests=dict(pod.requests),
        image=pod.image,
        role=pod.role,
        rank=pod.rank,
        restarts=pod.restarts,
    )


def _gprs_of(seen: Sequence[PodSeen], slice_of: Mapping[str, UUID]) -> dict[UUID, UUID]:
    """Returns the workspace of each request that pods name."""
    ids = {gpr_id for pod in seen if (gpr_id := id_of(pod.gpr_id))}
    return dict(Gpr.objects.filter(pk__in=ids).values_list("pk", "slice_id")) if ids else {}


def _gpus_of(seen: Sequence[PodSeen], cluster: Cluster) -> Any:
    uuids = {uuid for pod in seen for uuid in pod.gpus}
    there = Gpu.objects.filter(node__cluster=cluster, node__gone_at=None, gone_at=None, uuid__in=uuids)
    return there.order_by().values_list("uuid", "pk") if uuids else ()


def _pods_end(message: PodsRequest, cluster: Cluster, now: datetime) -> set[UUID]:
    """Returns the workloads of pods that are gone."""
    there = Pod.objects.filter(cluster=cluster, gone_at=None)
    gone = set(message.gone)
    if message.there is not None:
        gone |= set(there.values_list("uid", flat=True)) - set(message.there)
    if not gone:
        return set()
    rows = there.filter(uid__in=gone)
    touched = set(rows.values_list("workload_id", flat=True))
    rows.update(gone_at=now, hold="", why="")
    return touched


def _is_any_unknown(message: PodsRequest, slice_of: Mapping[str, UUID], cluster: Cluster) -> bool:
    if message.there is None:
        return False
    refused = {pod.uid for pod in message.pods if pod.namespace not in slice_of}
    known = set(Pod.objects.filter(cluster=cluster, gone_at=None).values_list("uid", flat=True))
    return bool(set(message.there) - known - refused)


def _moment(at_s: float | None, now: datetime) -> datetime | None:
    """Times of a clock that is ahead count as now."""
    return None if at_s is None else min(datetime.fromtimestamp(at_s, UTC), now)

"""Computes the figures above the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, Q, Sum
from django.urls import reverse

from accounts.models import User
from core.pages import words
from core.pages.parts import Fact
from gpr.allocation.snapshot import PROMISE_TOLERANCE
from gpr.models import PROVISIONED, Gpr, GprState, Promise
from inventory.models import Gpu, Node, Reservation, ReservationState, ReservedGpu
from inventory.selectors import cluster_is_open, clusters_visible_to
from journal.models import Event
from portal_shared.parts.paging import url_with

LOOK_BACK = timedelta(hours=24)
SHAPES_SHOWN = 3
IS_LATE = Q(state=GprState.QUEUED, planned_start_at__gt=F("promise__first_promised_start_at") + PROMISE_TOLERANCE)


@dataclass(frozen=True, slots=True)
class QueueCounts:
    waiting: int
    late: int
    approval: int
    running: int
    oldest_queued_at: datetime | None
    oldest_approval_at: datetime | None

    @classmethod
    def load(cls) -> QueueCounts:
        queued, approval = Q(state=GprState.QUEUED), Q(state=GprState.PENDING_APPROVAL)
        rows = Gpr.objects.filter(state__in=[GprState.QUEUED, GprState.PENDING_APPROVAL, *PROVISIONED])
        found = rows.aggregate(
            waiting=Count("pk", filter=queued),
            late=Count("pk", filter=IS_LATE),
            approval=Count("pk", filter=approval),
            running=Count("pk", filter=Q(state__in=PROVISIONED)),
            oldest_queued_at=Min("state_changed_at", filter=queued),
            oldest_approval_at=Min("state_changed_at", filter=approval),
        )
        return cls(**found)


@dataclass(frozen=True, slots=True)
class ShapeCount:
    name: str
    gpus: int
    free: int

    @classmethod
    def load(cls, *, actor: User, now: datetime) -> list[ShapeCount]:
        """Counts the same as `gpus_free` of nodes_visible_to, but faster, since every page of the queue needs it."""
        open_ids = [cluster.pk for cluster in clusters_visible_to(actor) if cluster_is_open(cluster, now)]
        sick = Gpu.objects.filter(gone_at=None, is_healthy=False).values("node")
        usable = Node.objects.filter(is_ready=True, cordoned_at=None, gone_at=None, cluster__in=open_ids).exclude(pk__in=sick)
        nodes = Node.objects.filter(gone_at=None, gpu_count__gt=0).order_by("shape").values("shape")
        sums = nodes.annotate(gpu_sum=Sum("gpu_count"), usable_sum=Sum("gpu_count", filter=Q(pk__in=usable.values("pk")), default=0))
        held: Any = ReservedGpu.objects.filter(state=ReservationState.HELD, gpu__node__gone_at=None).order_by()
        taken = dict(held.filter(gpu__node__in=usable.values("pk")).values_list("gpu__node__shape").annotate(count=Count("pk")))
        return [cls(row["shape"], row["gpu_sum"], max(row["usable_sum"] - taken.get(row["shape"], 0), 0)) for row in sums]


@dataclass(frozen=True, slots=True)
class PromiseScore:
    """Holds counts of the last 24 hours. `kept`: started by the first promise. `moved`: GPRs whose promise moved."""

    started: int
    kept: int
    moved: int

    @classmethod
    def load(cls, *, now: datetime) -> PromiseScore:
        since = now - LOOK_BACK
        started = Promise.objects.filter(gpr__in=Reservation.objects.filter(starts_at__gte=since, starts_at__lte=now).values("gpr"))
        score = started.exclude(gpr__provisioning_at=None).aggregate(
            started=Count("pk"), kept=Count("pk", filter=Q(gpr__provisioning_at__lte=F("first_promised_start_at") + PROMISE_TOLERANCE))
        )
        moved = Event.objects.filter(kind="promise.moved", at__gte=since).aggregate(moved=Count("gpr_id", distinct=True))
        return cls(**score, **moved)


def queue_facts(counts: QueueCounts, shapes: list[ShapeCount], *, now: datetime) -> list[Fact]:
    score = PromiseScore.load(now=now)
    kept = f"{words.number(score.kept)} of {words.number(score.started)}" if score.started else "none due"
    url = reverse("admin-queue")
    return [
        Fact("Running", words.number(counts.running), "GPRs", url_with(url, {"state": "running"})),
        Fact("Waiting", words.number(counts.waiting), "GPRs", url_with(url, {"state": "queued"})),
        Fact("Late against promise", words.number(counts.late), "", url_with(url, {"state": "late"}), "late" if counts.late else ""),
        Fact("Longest wait", _since(counts.oldest_queued_at, now) or "none"),
        Fact(
            "Needs approval",
            words.number(counts.approval),
            f"oldest {_since(counts.oldest_approval_at, now)}" if counts.oldest_approval_at else "",
            url_with(url, {"state": "approval"}),
        ),
        _gpus(shapes),
        Fact("Promises kept, 24 h", kept, f"{words.number(score.moved)} moved"),
    ]


def _since(at: datetime | None, now: datetime) -> str:
    return words.duration(max(now - at, timedelta()).total_seconds()) if at else ""


def _gpus(shapes: list[ShapeCount]) -> Fact:
    """Shapes are not added up. The largest come first."""
    url = reverse("admin-inventory")
    if not shapes:
        return Fact("GPUs free", "none", "no cluster has joined", reverse("admin-clusters"), is_wide=True)
    first, *others = sorted(shapes, key=lambda shape: (-shape.gpus, shape.name))
    rest = [f"{shape.name}: {_free(shape)}" for shape in others[: SHAPES_SHOWN - 1]]
    rest += [words.plural(len(others) - len(rest), "more shape")] if len(others) > len(rest) else []
    return Fact(f"GPUs free, {first.name}", _free(first), "; ".join(rest), url, is_wide=True)


def _free(shape: ShapeCount) -> str:
    return f"{words.number(shape.free)} of {words.number(shape.gpus)}"

"""Reads the usage of quotas, and their limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Count, Max, Sum

from core.errors import Conflict
from core.words import number
from core.written_sql import WrittenQuery
from gpr.models import Gpr, GprState
from inventory.models import Node, Reservation, ReservationState, ReservedGpu
from slices.models import OWNER_ID, Quota
from slices.quotas.services import whose

_LIMITED: Final = Quota.objects.filter(most_gpus__isnull=False).alias(owned_by=OWNER_ID)
limits_of: Final = WrittenQuery(_LIMITED.select_related("project", "slice").order_by("pk"), key="owned_by")  # of projects and workspaces
# Slice, project and shape -> GPUs.
Counts = Counter[tuple[UUID, UUID, str]]


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    quota: Quota
    held_gpus: int
    wanted_gpus: int  # by queued requests that name the shape

    @property
    def borrowed_gpus(self) -> int:
        """Entitled projects may take these back after a notice."""
        return max(self.held_gpus - self.quota.guaranteed_gpus, 0)

    @property
    def note(self) -> str:
        most = self.quota.most_gpus
        if most is None or self.held_gpus <= most:
            return ""
        held = f"{number(self.held_gpus)} are held, more than the {number(most)} allowed"
        return f"{held}: nothing is taken away, and nothing new starts until less is held."


def refuse_over_limit(taken: Collection[tuple[UUID, str]], projects: Set[UUID]) -> None:
    """Raises Conflict. `taken`: (project or slice, shape). The caller has locked the quotas (`quotas_keep`)."""
    limits = [quota for quota in limits_of({owner for owner, _ in taken}) if (quota.owner.pk, quota.shape) in taken]
    held = _booked(projects) if limits else Counts()
    for quota in limits:
        if (gpus := _sum_for(quota, held)) > (quota.most_gpus or 0):
            raise Conflict(f"The quota of {quota.shape} lets {whose(quota)} hold {number(quota.most_gpus or 0)}, not {number(gpus)}.")


def largest_nodes() -> dict[str, int]:
    """Returns the GPUs of the largest node of each shape."""
    return dict(Node.objects.filter(gone_at=None).order_by().values_list("shape").annotate(Max("gpu_count")))


def quota_usages(quotas: Iterable[Quota]) -> list[QuotaUsage]:
    quotas = list(quotas)
    projects = {quota.tenant.pk for quota in quotas}
    held, wanted = _held(projects), _wanted(projects)
    return [QuotaUsage(quota, _sum_for(quota, held), _sum_for(quota, wanted)) for quota in quotas]


def _sum_for(quota: Quota, counts: Counts) -> int:
    owner = quota.owner.pk
    return sum(count for (slice_id, project_id, shape), count in counts.items() if shape == quota.shape and owner in {slice_id, project_id})


def _held(projects: Set[UUID]) -> Counts:
    rows = ReservedGpu.objects.filter(state=ReservationState.HELD, reservation__slice__project__in=projects).order_by()
    rows = rows.exclude(reservation__replaces__state=ReservationState.HELD)  # a spare, while the node that it replaces is there
    kinds = rows.values_list("reservation__slice", "reservation__slice__project", "gpu__node__shape")
    return Counter({(slice_id, project_id, shape): n for slice_id, project_id, shape, n in kinds.annotate(n=Count("pk"))})


def _booked(projects: Set[UUID]) -> Counts:
    # Counted as the planner does, by requested GPUs on existing nodes, so that no planned start is refused.
    rows = Reservation.objects.filter(state=ReservationState.HELD, slice__project__in=projects, node__gone_at=None)
    rows = rows.exclude(replaces__state=ReservationState.HELD)
    counts: Counts = Counter()
    for slice_id, project_id, shape, gpus_per_node, gpu_count in rows.values_list(
        "slice", "slice__project", "node__shape", "gpr__gpus_per_node", "node__gpu_count"
    ):
        counts[slice_id, project_id, shape] += gpus_per_node or gpu_count
    return counts


def _wanted(projects: set[UUID]) -> Counts:
    # Requests for whole nodes count the largest node of the shape.
    largest = largest_nodes()
    rows = Gpr.objects.filter(state=GprState.QUEUED, slice__project__in=projects).exclude(shape="").order_by()
    kinds = rows.values_list("slice", "slice__project", "shape", "gpus_per_node").annotate(Sum("nodes"))
    counts: Counts = Counter()
    for slice_id, project_id, shape, gpus_per_node, nodes in kinds:
        counts[slice_id, project_id, shape] += nodes * (gpus_per_node or largest.get(shape, 0))
    return counts

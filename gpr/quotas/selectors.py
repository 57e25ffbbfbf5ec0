"""How quotas stand: what is held and wanted under each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Max, Q, Sum

from core.errors import Conflict
from core.words import number
from gpr.models import Gpr, GprState
from inventory.models import Node, Reservation, ReservationState, ReservedGpu
from slices.models import Quota
from slices.quotas import whose

# Slice, project and shape -> GPUs.
Counts = Counter[tuple[UUID, UUID, str]]


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """Of a quota, in GPUs of its shape. `wanted_gpus`: of queued requests that name this shape."""

    quota: Quota
    held_gpus: int
    wanted_gpus: int

    @property
    def borrowed_gpus(self) -> int:
        """Held beyond the guarantee: others who are entitled to them may take them back, after a notice."""
        return max(self.held_gpus - self.quota.guaranteed_gpus, 0)

    @property
    def note(self) -> str:
        """What follows when a limit was set below what is held."""
        most = self.quota.most_gpus
        if most is None or self.held_gpus <= most:
            return ""
        held = f"{number(self.held_gpus)} are held, more than the {number(most)} allowed"
        return f"{held}: nothing is taken away, and nothing new starts until less is held."


def refuse_beyond(taken: Collection[tuple[UUID, str]], projects: Set[UUID]) -> None:
    """What is held now must not be more than is allowed to these, (project or slice, shape), who have just taken more. Raises Conflict.

    The caller has kept the quotas of these projects as they are (`quotas_keep`). One query where nobody is limited, else two.
    """
    rows = Quota.objects.filter(Q(project__in=projects) | Q(slice__project__in=projects), most_gpus__isnull=False)
    limits = [quota for quota in rows.select_related("project", "slice__project").order_by("pk") if (quota.owner.pk, quota.shape) in taken]
    held = _booked(projects) if limits else Counts()
    for quota in limits:
        if (gpus := _under(quota, held)) > (quota.most_gpus or 0):
            raise Conflict(f"By the quota of {quota.shape} {whose(quota)} may hold {number(quota.most_gpus or 0)}, not {number(gpus)}.")


def quota_usages(quotas: Iterable[Quota]) -> list[QuotaUsage]:
    """In the order given. Three queries, however many there are."""
    quotas = list(quotas)
    projects = {quota.tenant.pk for quota in quotas}
    held, wanted = _held(projects), _wanted(projects)
    return [QuotaUsage(quota, _under(quota, held), _under(quota, wanted)) for quota in quotas]


def _under(quota: Quota, counts: Counts) -> int:
    owner = quota.owner.pk
    return sum(count for (slice_id, project_id, shape), count in counts.items() if shape == quota.shape and owner in {slice_id, project_id})


def _held(projects: Set[UUID]) -> Counts:
    rows = ReservedGpu.objects.filter(state=ReservationState.HELD, reservation__slice__project__in=projects).order_by()
    rows = rows.exclude(reservation__replaces__state=ReservationState.HELD)  # a spare, while the node that it replaces is there
    kinds = rows.values_list("reservation__slice", "reservation__slice__project", "gpu__node__shape")
    return Counter({(slice_id, project_id, shape): n for slice_id, project_id, shape, n in kinds.annotate(n=Count("pk"))})


def _booked(projects: Set[UUID]) -> Counts:
    """What is held as the planner counts it: by what was asked for, on nodes that are there. Else it would plan what is then refused."""
    rows = Reservation.objects.filter(state=ReservationState.HELD, slice__project__in=projects, node__gone_at=None)
    rows = rows.exclude(replaces__state=ReservationState.HELD)
    counts: Counts = Counter()
    for slice_id, project_id, shape, gpus_per_node, gpu_count in rows.values_list(
        "slice", "slice__project", "node__shape", "gpr__gpus_per_node", "node__gpu_count"
    ):
        counts[slice_id, project_id, shape] += gpus_per_node or gpu_count
    return counts


def _wanted(projects: set[UUID]) -> Counts:
    """Whole nodes count as the largest of their shape."""
    largest = dict(Node.objects.filter(gone_at=None).order_by().values_list("shape").annotate(Max("gpu_count")))
    rows = Gpr.objects.filter(state=GprState.QUEUED, slice__project__in=projects).exclude(shape="").order_by()
    kinds = rows.values_list("slice", "slice__project", "shape", "gpus_per_node").annotate(Sum("nodes"))
    counts: Counts = Counter()
    for slice_id, project_id, shape, gpus_per_node, nodes in kinds:
        counts[slice_id, project_id, shape] += nodes * (gpus_per_node or largest.get(shape, 0))
    return counts

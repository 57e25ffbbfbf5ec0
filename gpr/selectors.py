"""What a user may see of GPRs; for others they do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from accounts.models import User
from egs.errors import NotAllowed, StaleState
from egs.rest.references import one_by_id
from gpr.models import BookingSeries, Eviction, EvictionVictim, Gpr, GprState
from inventory.models import Node, Reservation, ReservationState, StepResult
from journal.models import Event
from slices.models import Role
from slices.selectors import has_role, slices_visible_to

# As the planner considers them (gpr/planner/waiting.py); the index gpr_queue is in this order.
QUEUE_ORDER = ("-priority", "turn_share", "turn_key", "turn_at", "id")


def gprs_visible_to(actor: User) -> QuerySet[Gpr]:
    rows = Gpr.objects.select_related("slice", "owner", "cluster", "promise", "claim__cluster").prefetch_related("clusters")
    return rows if actor.is_admin else rows.filter(slice__in=slices_visible_to(actor))


def with_nodes(rows: QuerySet[Gpr]) -> QuerySet[Gpr]:
    """With the reservations that each holds now, as `held_now`."""
    held = Reservation.objects.filter(state=ReservationState.HELD).select_related("node").prefetch_related("gpus__gpu")
    return rows.prefetch_related(Prefetch("reservations", queryset=held.order_by("node__name", "pk"), to_attr="held_now"))


def gpr_for(actor: User, gpr_id: str | UUID, *, write: bool = False, version: int | None = None, rows: QuerySet[Gpr] | None = None) -> Gpr:
    """NotFound when the actor may not know of it, NotAllowed when he sees it but may not change it.

    StaleState when he names a version that is no longer the present one.
    """
    gpr = one_by_id(gprs_visible_to(actor) if rows is None else rows, gpr_id, what="GPR")
    if write and not is_writable_by(actor, gpr):
        raise NotAllowed("Only its owner, an owner of the workspace or an administrator may change it.")
    if version is not None and version != gpr.version:
        raise StaleState(f"This GPR is at version {gpr.version}, you gave {version}. Read it again and decide anew.", version=gpr.version)
    return gpr


def is_writable_by(actor: User, row: Gpr | BookingSeries) -> bool:
    if row.owner_id == actor.pk:
        return has_role(actor, row.slice, Role.EDITOR)
    return has_role(actor, row.slice, Role.OWNER)


def series_visible_to(actor: User) -> QuerySet[BookingSeries]:
    rows = BookingSeries.objects.select_related("slice", "owner")
    return rows if actor.is_admin else rows.filter(slice__in=slices_visible_to(actor))


def series_for(actor: User, series_id: str | UUID, *, write: bool = False) -> BookingSeries:
    """NotFound when the actor may not know of it, NotAllowed when he sees it but may not change it."""
    series = one_by_id(series_visible_to(actor).prefetch_related("occurrences__gpr"), series_id, what="booking series")
    if write and not is_writable_by(actor, series):
        raise NotAllowed("Only its owner, an owner of the workspace or an administrator may change it.")
    return series


def queue_visible_to(actor: User) -> QuerySet[Gpr]:
    """What waits, in the order in which it is considered."""
    return gprs_visible_to(actor).filter(state=GprState.QUEUED).order_by(*QUEUE_ORDER)


def queue_positions(gprs: Iterable[Gpr]) -> dict[UUID, int]:
    """For those that wait; 1 is considered first. It counts those before, of whomever, and tells nothing else of them."""
    waiting = {gpr.pk: gpr for gpr in gprs if gpr.state == GprState.QUEUED}
    if len(waiting) <= 1:
        return {pk: _position(gpr) for pk, gpr in waiting.items()}
    # The database numbers all keys by its index and answers for the page alone. As an alternative the filter counts after the numbering.
    place = Window(RowNumber(), order_by=list(QUEUE_ORDER))
    rows = Gpr.objects.filter(state=GprState.QUEUED).annotate(place=place).filter(Q(place__lt=1) | Q(pk__in=waiting))
    return dict(rows.order_by().values_list("pk", "place"))


def _position(gpr: Gpr) -> int:
    ahead = Q(priority__gt=gpr.priority) | Q(priority=gpr.priority) & before(gpr)
    return 1 + Gpr.objects.filter(ahead, state=GprState.QUEUED).count()


def before(gpr: Gpr) -> Q:
    """Of those of its priority, whoever is considered before it."""
    is_older = Q(turn_at__lt=gpr.turn_at) | Q(turn_at=gpr.turn_at, pk__lt=gpr.pk)
    has_less = Q(turn_key__lt=gpr.turn_key) | Q(turn_key=gpr.turn_key) & is_older
    return Q(turn_share__lt=gpr.turn_share) | Q(turn_share=gpr.turn_share) & has_less


def by_id(text: str) -> Q:
    """By the first letters of an id, as pages show them, or by all; an empty Q for what is no id."""
    digits = text.lower().removeprefix("gpr-").replace("-", "")
    if not 4 <= len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        return Q()
    return Q(pk__gte=UUID(digits.ljust(32, "0")), pk__lte=UUID(digits.ljust(32, "f")))


def steps_of(gpr: Gpr) -> QuerySet[StepResult]:
    """Of all its runs."""
    return _steps().filter(reservation__gpr=gpr)


def steps_on(node: Node) -> QuerySet[StepResult]:
    """Of all boxes that were on it: for administrators."""
    return _steps().filter(reservation__node=node)


def _steps() -> QuerySet[StepResult]:
    return StepResult.objects.select_related("reservation__node").prefetch_related("results")


def names_visible_to(actor: User, gpr_ids: set[str]) -> dict[str, str]:
    """Names for those of the ids that the actor may know of; an empty one is of nobody."""
    known = gpr_ids - {""}
    if not known:
        return {}
    rows = gprs_visible_to(actor).filter(pk__in=known).values_list("pk", "name")
    return {str(pk): name for pk, name in rows}


def evictions_visible_to(actor: User) -> QuerySet[Eviction]:
    """For his GPRs or of them. Each, and each of its victims, `is_known` when he may know of that GPR; the others only count."""
    known = gprs_visible_to(actor).values("pk")
    victims: Any = EvictionVictim.objects.select_related("gpr__slice").annotate(is_known=Exists(known.filter(pk=OuterRef("gpr"))))
    rows = Eviction.objects.select_related("gpr__slice").annotate(is_known=Exists(known.filter(pk=OuterRef("gpr"))))
    rows = rows.filter(Q(is_known=True) | Exists(victims.filter(is_known=True, eviction=OuterRef("pk"))))
    return rows.prefetch_related(Prefetch("victims", queryset=victims))


def events_visible_to(actor: User) -> QuerySet[Event]:
    """Those of his slices; an administrator sees all."""
    rows = Event.objects.select_related("actor")
    return rows if actor.is_admin else rows.filter(slice_id__in=slices_visible_to(actor).values("pk"))

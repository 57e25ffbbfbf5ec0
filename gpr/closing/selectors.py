"""Previews the ends that archiving or removing would cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat

from gpr.closing.services import WAITING
from gpr.models import PROVISIONED, BookingSeries, Gpr
from slices.models import LIVE_STATES, Invitation, Kubeconfig, Life, Membership, Namespace, Project, Slice

NAMES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class EndingRow:
    """Holds as `names` the first NAMES_MAX of them."""

    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Endings:
    """Both ways end all GPRs, series and kubeconfigs. A removal also ends workspaces, namespaces, members and invitations."""

    running: EndingRow
    waiting: EndingRow
    booked: EndingRow
    series: EndingRow
    kubeconfigs: EndingRow
    namespaces: EndingRow
    members: EndingRow
    invitations: EndingRow
    workspaces: EndingRow  # of a project: those that are not removed


def endings_of(owner: Project | Slice) -> Endings:
    """Needs at most 18 queries."""
    slices: Sequence[Slice] = [owner] if isinstance(owner, Slice) else list(owner.slices.exclude(life=Life.REMOVED))
    gprs = Gpr.objects.filter(slice__in=slices)
    waiting, of_slices = gprs.filter(state__in=WAITING), Q(slice__in=slices)
    return Endings(
        running=_ending(gprs.filter(state__in=PROVISIONED), "name"),
        waiting=_ending(waiting.filter(is_booking=False), "name"),
        booked=_ending(waiting.filter(is_booking=True), "name"),
        series=_ending(BookingSeries.objects.filter(of_slices, canceled_at=None), "name"),
        kubeconfigs=_ending(Kubeconfig.objects.filter(of_slices, state__in=LIVE_STATES), "user__name"),
        namespaces=_ending(Namespace.with_pending.filter(of_slices).annotate(place=Concat("cluster__name", Value("/"), "name")), "place"),
        members=_ending(Membership.objects.filter(of_slices), "user__name"),
        invitations=_ending(Invitation.objects.filter(of_slices), "name"),
        workspaces=EndingRow(0, ())
        if isinstance(owner, Slice)
        else EndingRow(len(slices), tuple(slice_.name for slice_ in slices[:NAMES_MAX])),
    )


def _ending(rows: QuerySet[Any], name: str) -> EndingRow:
    names = tuple(rows.order_by(name, "pk").values_list(name, flat=True)[: NAMES_MAX + 1])
    return EndingRow(rows.count() if len(names) > NAMES_MAX else len(names), names[:NAMES_MAX])

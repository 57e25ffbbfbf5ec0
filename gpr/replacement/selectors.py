"""Reads failed nodes of a GPR and their spares, for pages and API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Prefetch, TextChoices

from gpr.models import Gpr
from inventory.models import Reservation


class ReplacementOutcome(TextChoices):
    SOUGHT = "sought", "A spare is looked for"
    ENTERING = "entering", "A spare is being checked"
    REPLACED = "replaced", "A spare took its place"
    FAILED = "failed", "The spare did not take its place"


@dataclass(frozen=True, slots=True)
class Replacement:
    node_id: UUID
    node: str
    failing_at: datetime
    why: str
    outcome: ReplacementOutcome
    spare_id: UUID | None = None
    spare: str = ""
    since_at: datetime | None = None
    joined_at: datetime | None = None
    why_not: str = ""  # why it was not replaced, as a sentence


def replacements_of(gpr: Gpr) -> list[Replacement]:
    """Returns the replacements of the last run, by time of failure. Runs two queries."""
    if not gpr.run:
        return []
    spares = Prefetch("spares", queryset=Reservation.objects.select_related("node").order_by("starts_at", "pk"))
    rows = Reservation.objects.filter(gpr=gpr, run=gpr.run, failing_at__isnull=False).select_related("node")
    return [each for row in rows.prefetch_related(spares).order_by("failing_at", "pk") for each in _of(row)]


def _of(row: Reservation) -> Iterator[Replacement]:
    whose = (row.node_id, row.node.name, row.failing_at or row.starts_at, row.failing_why)
    spares = list(row.spares.all())
    for spare in spares:
        outcome = (
            ReplacementOutcome.REPLACED
            if spare.joined_at
            else ReplacementOutcome.ENTERING
            if spare.is_coming
            else ReplacementOutcome.FAILED
        )
        why_not = spare.failure if outcome == ReplacementOutcome.FAILED else ""
        yield Replacement(*whose, outcome, spare.node_id, spare.node.name, spare.starts_at, spare.joined_at, why_not)
    if all(spare.joined_at is None and not spare.is_coming for spare in spares):
        yield Replacement(*whose, ReplacementOutcome.SOUGHT, why_not=row.spare_refusal)

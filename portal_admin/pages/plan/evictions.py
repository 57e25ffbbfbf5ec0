"""Shows evicted GPRs: which request needed their nodes, what they lost and what it gained."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse

from core.pages import words
from core.pages.parts import ListFoot
from gpr.models import EvictionVictim, Gpr, VictimKind, VictimOutcome
from gpr.requests.selectors import evictions_visible_to
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell

ORDER = ("-made_at", "id")
KINDS = {
    VictimKind.RECLAIM: "borrowed its GPUs",
    VictimKind.PRIORITY: "of lower priority",
    VictimKind.DEFRAGMENT: "moved to free whole nodes",
    VictimKind.ADMIN: "by an administrator",
}
OUTCOMES = {
    VictimOutcome.NOTICED: "will be evicted",
    VictimOutcome.EVICTED: "evicted",
    VictimOutcome.LEFT: "ended by itself",
    VictimOutcome.SPARED: "spared",
    VictimOutcome.SOONER: "notified again, ends sooner",
}
COSTS = frozenset({VictimOutcome.NOTICED, VictimOutcome.EVICTED})


@dataclass(frozen=True, slots=True)
class Party:
    name: str
    url: str
    mark: Mark

    @classmethod
    def of(cls, gpr: Gpr) -> Party:
        return cls(gpr.name, reverse("admin-inspect", args=[gpr.pk]), Mark.of(gpr.slice))


@dataclass(frozen=True, slots=True)
class VictimLine:
    party: Party
    why: str
    outcome: str
    at: datetime
    is_due: bool

    @classmethod
    def of(cls, victim: EvictionVictim) -> VictimLine:
        outcome = VictimOutcome(victim.outcome)
        at = victim.outcome_at or victim.ends_at
        return cls(Party.of(victim.gpr), _why(victim), OUTCOMES[outcome], at, outcome == VictimOutcome.NOTICED)


@dataclass(frozen=True, slots=True)
class EvictionLine:
    """`lost`: GPU-hours that the evicted had run. `party` None: an administrator evicted."""

    id: UUID
    made_at: datetime
    party: Party | None
    start_at: datetime | None
    won_s: float
    victims: tuple[VictimLine, ...]
    lost: str

    @classmethod
    def of(cls, row: Any) -> EvictionLine:
        """`row` has prefetched victims."""
        victims = list(row.victims.all())
        lost_gpu_s = sum(victim.lost_gpu_s for victim in victims if victim.outcome in COSTS)
        return cls(
            id=row.pk,
            made_at=row.made_at,
            party=Party.of(row.gpr) if row.gpr is not None else None,
            start_at=row.start_at,
            won_s=(row.instead_at - row.start_at).total_seconds() if row.start_at is not None else 0,
            victims=tuple(VictimLine.of(victim) for victim in victims),
            lost=gpu_hours(lost_gpu_s),
        )


@dataclass(frozen=True, slots=True)
class EvictionsPage:
    shell: Shell
    rows: tuple[EvictionLine, ...]
    foot: ListFoot
    url: str

    @classmethod
    def build(cls, request: PageRequest) -> EvictionsPage:
        url = reverse("admin-evictions")
        page = page_of(request, evictions_visible_to(request.user), ordering=ORDER)
        return cls(
            shell=admin_shell(request, page="queue"),
            rows=tuple(EvictionLine.of(row) for row in page.rows),
            foot=foot_of(page, url),
            url=url_with(url, {"cursor": request.GET.get("cursor", "")}, part="rows"),
        )


def _why(victim: EvictionVictim) -> str:
    """Names the priority at the time of the eviction."""
    kind = KINDS[VictimKind(victim.kind)]
    return kind if victim.priority is None else f"priority {victim.priority}, {kind}"


def gpu_hours(gpu_s: int) -> str:
    """Shows a decimal below ten."""
    hours = gpu_s / words.HOUR_S
    return words.number(round(hours)) if hours >= 10 or not gpu_s else f"{hours:.1f}"

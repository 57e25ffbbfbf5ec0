"""Explains why GPRs wait, and hides GPRs that the reader may not see."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from accounts.models import User
from core.words import utc
from gpr.allocation.rows import LAST_S, gprs_by_id
from gpr.allocation.snapshot import at
from gpr.models import Gpr
from gpr.requests.selectors import names_visible_to
from planner.explain import STRANGER, sentence
from planner.plan import Blocker, Explanation, Reason

# Formats a time for the reader, in his time zone.
FormatTime = Callable[[datetime], str]


@dataclass(frozen=True, slots=True)
class VisibleBlocker:
    """All hidden GPRs together are one blocker without id, size or time."""

    name: str
    id: str | None = None
    is_running: bool | None = None
    until: datetime | None = None
    nodes: int | None = None  # None: not known
    gpus_per_node: int | None = None  # None: all of each node


@dataclass(frozen=True, slots=True)
class VisibleExplanation:
    reason: Reason
    sentence: str
    blockers: list[VisibleBlocker]
    ahead_count: int  # includes hidden GPRs


def explain(explanations: Sequence[Explanation], *, actor: User, now: datetime, format_time: FormatTime = utc) -> list[VisibleExplanation]:
    names = names_visible_to(actor, {blocker.id for explanation in explanations for blocker in explanation.blockers})
    return [_visible(explanation, names, math.floor(now.timestamp()), format_time) for explanation in explanations]


def explain_gprs(gprs: Iterable[Gpr], *, actor: User, now: datetime, format_time: FormatTime = utc) -> dict[Any, VisibleExplanation]:
    """Returns explanations by GPR id, for waiting GPRs that are planned."""
    stored = {gpr.pk: explanation for gpr in gprs if (explanation := _stored(gpr.explanation)) is not None}
    return dict(zip(stored, explain(list(stored.values()), actor=actor, now=now, format_time=format_time), strict=True))


def sentences_for_slices(gprs: Iterable[Gpr]) -> dict[UUID, str]:
    """Returns sentences by GPR id for every reader of the slice. They contain no remaining time, since they are stored."""
    waiting = {gpr.pk: (gpr.slice_id, stored) for gpr in gprs if (stored := _stored(gpr.explanation)) is not None}
    ids = {blocker.id for _, explanation in waiting.values() for blocker in explanation.blockers}
    names: dict[UUID, dict[str, str]] = defaultdict(dict)
    for id_, gpr in gprs_by_id(ids).items():
        names[gpr.slice_id][id_] = gpr.name
    return {
        pk: sentence(explanation, now_s=None, name_of=names[slice_id].get, say_at=lambda at_s: utc(at(at_s)))
        for pk, (slice_id, explanation) in waiting.items()
    }


def _visible(explanation: Explanation, names: Mapping[str, str], now_s: int, format_time: FormatTime) -> VisibleExplanation:
    blockers = [_visible_blocker(blocker, names[blocker.id]) for blocker in explanation.blockers if blocker.id in names]
    if len(blockers) < len(explanation.blockers):
        blockers.append(VisibleBlocker(STRANGER))
    text = sentence(explanation, now_s=now_s, name_of=names.get, say_at=lambda at_s: format_time(at(at_s)))
    return VisibleExplanation(explanation.reason, text, blockers, explanation.ahead_count)


def _visible_blocker(blocker: Blocker, name: str) -> VisibleBlocker:
    size = blocker.node_count or None, blocker.gpus_per_node or None
    until = at(blocker.until_s) if blocker.until_s < LAST_S else None  # one without a place has no end
    return VisibleBlocker(name, blocker.id, blocker.is_running, until, *size)


def _stored(data: Any) -> Explanation | None:
    # The reverse of `explanation_data` in gpr.allocation.stored_plan. Another version of EGS may have stored other data.
    try:
        blockers = tuple(_blocker(**b) for b in data["blockers"])
        most = {name: int(data[name]) for name in ("most_node_count", "most_gpus_per_node")}
        return Explanation(Reason(data["reason"]), blockers, **most)
    except (TypeError, ValueError, LookupError):
        return None


def _blocker(*, id: str, is_running: bool, until_s: int, is_overdue: bool = False, node_count: int = 0, gpus_per_node: int = 0) -> Blocker:
    return Blocker(str(UUID(id)), bool(is_running), int(until_s), bool(is_overdue), int(node_count), int(gpus_per_node))

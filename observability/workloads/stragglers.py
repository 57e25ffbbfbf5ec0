"""Finds GPUs of a workload that do less than their peers. It is pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from observability.workloads.models import Workload

PEERS_LEAST: Final = 4  # among fewer there is no telling who is late
BUSY_PERCENT: Final = 50  # peers that do less wait, load or write a checkpoint together
BEHIND_RATIO: Final = 0.85  # of the peers' median
# A reading is the mean of 15 s, so that a GPU whose readings are behind for so long was so for two minutes.
AFTER: Final = timedelta(seconds=105)


@dataclass(frozen=True, slots=True)
class GpuWork:
    gpu_id: str
    gpu_model: str
    at: datetime
    utilization_percent: int | None
    sm_clock_mhz: int | None


def behind_since(works: Iterable[GpuWork], before: Mapping[str, Any]) -> dict[str, str]:
    """Returns the time since which each GPU has been behind, in ISO format. `before`: the last answer, which stays where peers are not
    busy.
    """
    by_model: dict[str, list[GpuWork]] = defaultdict(list)
    for work in works:
        by_model[work.gpu_model].append(work)
    found: dict[str, str] = {}
    for peers in by_model.values():
        late = _late(peers)
        for work in peers:
            if work.gpu_id in before if late is None else work.gpu_id in late:
                found[work.gpu_id] = before.get(work.gpu_id, work.at.isoformat())
    return found


def stragglers_among(behind: Mapping[str, Any], *, now: datetime) -> dict[str, datetime]:
    """Returns GPUs that have been behind for two minutes, and since when."""
    return {gpu_id: at for gpu_id, at in since_of(behind).items() if now - at >= AFTER}


def since_of(behind: Mapping[str, Any]) -> dict[str, datetime]:
    return {gpu_id: datetime.fromisoformat(at) for gpu_id, at in behind.items()}


def stragglers_of(workload: Workload, *, now: datetime) -> dict[str, datetime]:
    return stragglers_among(workload.behind, now=now)


def _late(peers: Sequence[GpuWork]) -> set[str] | None:
    """Returns None if that cannot be told."""
    if len(peers) < PEERS_LEAST:
        return None
    use = _median(work.utilization_percent for work in peers)
    if use is None or use < BUSY_PERCENT:
        return None
    clock = _median(work.sm_clock_mhz for work in peers)
    return {work.gpu_id for work in peers if _is_below(work.utilization_percent, use) or _is_below(work.sm_clock_mhz, clock)}


def _is_below(value: int | None, usual: float | None) -> bool:
    return value is not None and usual is not None and value < BEHIND_RATIO * usual


def _median(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

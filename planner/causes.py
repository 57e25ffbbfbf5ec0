"""Says why the slots of requests move, and which boxes end early for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    OVERRUN = "overrun"  # a box ahead of it released its nodes late
    NODE_FAILURE = "node_failure"  # nodes of its slot are gone
    MAINTENANCE = "maintenance"  # nodes of its slot are closed, as announced
    CHANGED = "changed"  # the request itself was edited
    ACCESS = "access"  # its slice may no longer use the nodes of its slot
    SILENCE = "silence"  # the cluster of its slot was silent when it was due; delays those behind it too
    LATE_TICK = "late_tick"  # no tick ran when it was due; delays those behind it too
    RECLAIM = "reclaim"  # it would have borrowed GPUs that another is entitled to
    QUOTA = "quota"  # its project or its slice may hold no more then
    ADMIN = "admin"  # an administrator moved it, or another before it
    PREDECESSOR = "predecessor"  # the GPR that it starts after ends later
    PRIORITY = "priority"  # the policy lets much higher priorities move it
    SUPPLY = "supply"  # ordered nodes did not arrive
    TOPOLOGY = "topology"  # nodes of its slot are no longer in the one rack or NVLink domain that it needs
    FAULT = "fault"  # none of these: a fault of the planner


class EvictionKind(StrEnum):
    RECLAIM = "reclaim"  # it borrowed the GPUs, and a request is entitled to them
    PRIORITY = "priority"  # it is evictable, and one of higher priority may evict
    DEFRAGMENT = "defrag"  # an administrator moves it to free whole nodes


@dataclass(frozen=True, slots=True)
class Victim:
    id: str
    kind: EvictionKind
    frees_s: int  # when its GPUs are free
    lost_gpu_s: int  # its work since it began


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    id: str
    victims: tuple[Victim, ...]
    start_s: int
    instead_s: int  # the start without it; of a booking, the next time with room


def victims_of(evictions: Iterable[PlannedEviction]) -> list[Victim]:
    return [victim for eviction in evictions for victim in eviction.victims]

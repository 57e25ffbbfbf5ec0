"""Terms that a policy may set: columns of `Slice`, whose defaults hold where nobody sets anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.conf import settings

from slices.models import KUBECONFIG_MIN_S, PRIORITY_MAX, PRIORITY_MIN, Slice

COUNT_MAX: Final = 2**31 - 1
PATTERNS_MAX = SHAPES_MAX = 100


class Unit(StrEnum):
    COUNT = "count"
    DURATION = "duration"
    TIMEOUT = "timeout"  # a duration, or 0 for never
    FLAG = "flag"
    SHAPES = "shapes"
    PATTERNS = "patterns"


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    label: str
    unit: Unit
    least: int = 0
    most: int = COUNT_MAX
    is_narrowed_by_more: bool = False

    def widens(self, value: Any, bound: Any) -> bool:
        """Tell whether this value allows anything that `bound` does not."""
        match self.unit:
            case Unit.SHAPES:  # none named: all
                return bool(bound) and not (value and set(value) <= set(bound))
            case Unit.PATTERNS:
                return not set(value) <= set(bound)
            case Unit.TIMEOUT:
                return bool(bound) and not 0 < value <= bound
        return bool(value < bound if self.is_narrowed_by_more else value > bound)

    @property
    def default(self) -> Any:
        return self._column.get_default()

    @property
    def help(self) -> str:
        return str(self._column.help_text)

    @property
    def _column(self) -> Any:
        return Slice._meta.get_field(self.name)


def _duration(name: str, label: str, least: int, *, is_narrowed_by_more: bool = False) -> Term:
    return Term(name, label, Unit.DURATION, least, settings.EGS_DURATION_MAX_S, is_narrowed_by_more)


# In the order in which pages show them.
TERMS: Final = {
    term.name: term
    for term in (
        Term("nodes_approval", "Nodes without approval", Unit.COUNT),
        Term("gpus_approval", "GPUs without approval", Unit.COUNT),
        _duration("duration_approval_s", "Duration without approval", 1),
        _duration("duration_max_s", "Longest duration", 1),
        Term("priority_approval", "Priority without approval", Unit.COUNT, PRIORITY_MIN, PRIORITY_MAX),
        Term("queued_max", "Waiting requests", Unit.COUNT),
        _duration("ahead_max_s", "Start ahead", 60),
        Term("shapes", "Shapes", Unit.SHAPES),
        Term("may_evict", "May evict", Unit.FLAG),
        Term("may_skip_checks", "May skip checks", Unit.FLAG),
        Term("may_order", "May order nodes", Unit.FLAG),
        Term("idle_timeout_s", "Idle time-out", Unit.TIMEOUT, 0, settings.EGS_DURATION_MAX_S),
        Term("may_keep_idle", "May keep idle boxes", Unit.FLAG),
        _duration("burst_gain_s", "Gain outside its home", 0, is_narrowed_by_more=True),
        _duration("decide_within_s", "Time to decide", 60),
        Term("pods_max", "Pods in a namespace", Unit.COUNT),
        Term("may_reach_out", "May reach other networks", Unit.FLAG),
        _duration("kubeconfig_max_s", "Life of a kubeconfig", KUBECONFIG_MIN_S),
        Term("namespace_patterns", "Own names of namespaces", Unit.PATTERNS),
        Term("namespaces_max", "Namespaces", Unit.COUNT),
    )
}


def effective(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that hold for a workspace. Later layers come first."""
    found = {name: term.default for name, term in TERMS.items()}
    for layer in layers:
        found |= layer
    return found

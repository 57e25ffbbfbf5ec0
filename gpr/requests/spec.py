"""Validates the fields of a request, for API, pages and cluster requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Max

from core.errors import InvalidInput, OverPolicy
from core.names import text_fault
from core.words import duration_exact, number, plural, utc
from core.written_sql import WrittenQuery
from gpr.budgets.ledger import Excess, Ledger
from gpr.budgets.windows import GpuWindow
from gpr.models import GPUS_PER_NODE_MAX, NODES_MAX, AfterCondition, Gpr, GprTemplate
from gpr.quotas.selectors import limits_of
from inventory.models import Cluster, Node, Supply
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Slice
from slices.quotas.services import whose
from slices.selectors import refuse_closed

NAME_MAX_CHARS = 63
MODEL_MAX_CHARS = 16_384
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "nodes": (1, NODES_MAX),
    "gpus_per_node": (1, GPUS_PER_NODE_MAX),
    "min_gpu_memory_gib": (1, 100_000),
    "priority": (PRIORITY_MIN, PRIORITY_MAX),
}
EARLIEST_START_MAX = timedelta(days=366)
CLOCK_SLACK = timedelta(minutes=1)
BOOKING_AHEAD = timedelta(minutes=5)
# Shape, memory of each GPU, and the GPUs of the largest node.
_NODE_KINDS: Final = Node.objects.filter(gone_at=None).order_by().values_list("shape", "gpu_memory_gib").annotate(Max("gpu_count"))
_NODE_KINDS_IN: Final = WrittenQuery(_NODE_KINDS, key="cluster__id")
_NODE_KINDS_OF_SLICE: Final = WrittenQuery(_NODE_KINDS, key="cluster__slices__id")
_TO_ORDER: Final = Supply.objects.filter(is_enabled=True).order_by().values_list("shape", "gpus_per_node")
_KINDS_TO_ORDER: Final = WrittenQuery(_TO_ORDER, key="cluster__slices__id")
IDLE_MIN_S: Final = 300  # EGS knows of idle GPUs some minutes later
NEVER_S: Final = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class GprSpec:
    name: str
    slice: Slice
    nodes: int
    duration_s: int
    shape: str = ""  # empty: any with `min_gpu_memory_gib`
    min_gpu_memory_gib: int | None = None
    gpus_per_node: int | None = None  # None: all
    priority: int = PRIORITY_DEFAULT
    clusters: Sequence[Cluster] = ()  # empty: any of the slice
    earliest_start_at: datetime | None = None
    is_booking: bool = False  # it starts at `earliest_start_at` or is refused
    after: Gpr | None = None  # it starts when that one has ended
    after_condition: str = AfterCondition.ANY
    node_type: str = ""
    rdma: bool = False
    within: str = ""
    idle_timeout_s: int | None = None  # 0: never; None: as the policy says
    evictable: bool = True
    may_evict: bool = False
    requeue_on_failure: bool = True
    run_checks: bool = True
    model: dict[str, Any] = field(default_factory=dict)
    template: GprTemplate | None = None  # its values are already merged into the fields


# Fields that are copied to the Gpr unchanged.
PLAIN_FIELDS = tuple(name for name in GprSpec.__dataclass_fields__ if name not in {"slice", "clusters", "template"})
# The values of optional fields that are not given.
DEFAULTS: dict[str, Any] = {
    "model": {},
    **{name: each.default for name, each in GprSpec.__dataclass_fields__.items() if name in PLAIN_FIELDS and each.default is not MISSING},
}


def spec_check(spec: GprSpec, *, now: datetime, kept_start_at: datetime | None = None) -> None:
    """Raises Conflict in a closed workspace, InvalidInput with all faults, or OverPolicy for what the policy or a quota never allows.

    `kept_start_at`: an unchanged earliest start, which may be in the past.
    """
    refuse_closed(spec.slice)
    errors: dict[str, list[str]] = {}
    for field_name, text in _faults(spec, now, kept_start_at):
        errors.setdefault(field_name, []).append(text)
    if errors:
        raise InvalidInput(errors)
    starts_at = max(now, spec.earliest_start_at or now)
    if late := beyond_end(spec.slice, start_at=starts_at, duration_s=spec.duration_s, now=now):
        raise late
    if starts_at > now + timedelta(seconds=spec.slice.ahead_max_s):
        raise OverPolicy(
            f"In workspace {spec.slice.name} a request may start {duration_exact(spec.slice.ahead_max_s)} from now at the latest; "
            f"{utc(starts_at)} was asked for. Book an earlier time, or ask an administrator.",
            limit="ahead_max_s",
            most=spec.slice.ahead_max_s,
        )
    longest_s = min(spec.slice.duration_max_s, settings.EGS_DURATION_MAX_S)
    if spec.duration_s > longest_s:
        raise OverPolicy(
            f"In workspace {spec.slice.name} one may take {duration_exact(longest_s)} at most; "
            f"{duration_exact(spec.duration_s)} were asked for. Book less, and again later if it is not enough.",
            limit="duration_max_s",
            most=longest_s,
        )
    _refuse_beyond_quota(spec)


def request_summary(spec: GprSpec) -> str:
    gpus = "all GPUs" if spec.gpus_per_node is None else plural(spec.gpus_per_node, "GPU")
    each = " each" if spec.nodes > 1 else ""
    kind = spec.shape or f"at least {spec.min_gpu_memory_gib} GiB"
    booked = f", booked for {utc(spec.earliest_start_at)}" if spec.is_booking and spec.earliest_start_at else ""
    size = f"{plural(spec.nodes, 'node')} with {gpus}{each} ({kind})"
    behind = ", after another request" if spec.after is not None else ""  # whose name not every reader may know
    return f"{size} for {duration_exact(spec.duration_s)} at priority {spec.priority}{booked}{behind}"


@dataclass(frozen=True, slots=True)
class Breach:
    """It is one rule of the policy that a request exceeds. `fitting`: the largest value that needs no approval."""

    field: str
    text: str
    fitting: int


def approval_breaches(spec: GprSpec, *, now: datetime, granted: GprSpec | None = None) -> list[Breach]:
    """Returns the policy rules and budgets that the request exceeds. Values up to those of `granted` need no approval."""
    excesses = budget_excesses(spec, Ledger.load([spec.slice], now=now), now=now, granted=granted)
    over = [Breach("gpu_hours", excess.text, excess.fitting_s) for excess in excesses if excess.needs_approval]
    return [*policy_breaches(spec, granted=granted), *over]


def approval_reasons(spec: GprSpec, *, now: datetime, granted: GprSpec | None = None) -> list[str]:
    return [breach.text for breach in approval_breaches(spec, now=now, granted=granted)]


def budget_excesses(spec: GprSpec, ledger: Ledger, *, now: datetime, granted: GprSpec | None = None) -> list[Excess]:
    if not ledger.budgets:
        return []
    return ledger.excesses(window_of(spec, now), granted=window_of(granted, now) if granted else None)


def refuse_over_budget(spec: GprSpec, *, now: datetime, granted: GprSpec | None = None) -> None:
    """Raises OverPolicy for a request beyond a budget that allows no more."""
    for excess in budget_excesses(spec, Ledger.load([spec.slice], now=now), now=now, granted=granted):
        if not excess.needs_approval:
            raise excess.refusal()


def window_of(spec: GprSpec, now: datetime) -> GpuWindow:
    """Returns the span in which the request would hold GPUs if it started as soon as it may."""
    shapes = (spec.shape,) if spec.shape else tuple(spec.slice.shapes)
    starts_at = max(now, spec.earliest_start_at or now)
    ends_at = starts_at + timedelta(seconds=spec.duration_s)
    return GpuWindow(spec.slice.pk, spec.slice.project_id, shapes, _gpu_count(spec), starts_at, ends_at)


def policy_breaches(spec: GprSpec, *, granted: GprSpec | None = None) -> list[Breach]:
    return breaches_of(spec.slice, measures_of(spec), measures_of(granted) if granted is not None else None)


@dataclass(frozen=True, slots=True)
class Measures:
    """Holds the amounts of a request that a policy limits."""

    nodes: int
    gpus: int
    duration_s: int
    priority: int
    may_evict: bool
    skips_checks: bool
    idle_timeout_s: int  # NEVER_S: no time-out; 0: that of the policy


def measures_of(spec: GprSpec) -> Measures:
    idle_s = idle_measure(spec.idle_timeout_s)
    return Measures(spec.nodes, _gpu_count(spec), spec.duration_s, spec.priority, spec.may_evict, not spec.run_checks, idle_s)


def idle_measure(timeout_s: int | None) -> int:
    return 0 if timeout_s is None else timeout_s or NEVER_S


def breaches_of(policy: Slice, asked: Measures, granted: Measures | None = None) -> list[Breach]:
    """Returns the rules of the policy for which the request needs approval, beyond what it was granted. Runs no query."""
    limits = {
        "nodes": policy.nodes_approval,
        "gpus": policy.gpus_approval,
        "duration_s": policy.duration_approval_s,
        "priority": policy.priority_approval,
        "may_evict": int(policy.may_evict),
        "skips_checks": int(policy.may_skip_checks),
        "idle_timeout_s": policy.idle_timeout_s or NEVER_S,
    }
    over = [name for name, limit in limits.items() if getattr(asked, name) > max(limit, getattr(granted, name) if granted else 0)]
    return [Breach(name, _rule_text(name, getattr(asked, name), limits[name]), limits[name]) for name in over]


def _rule_text(name: str, asked: int, limit: int) -> str:
    match name:
        case "nodes":
            return f"{plural(asked, 'node')}; more than {number(limit)} need approval."
        case "gpus":
            return f"{plural(asked, 'GPU')}; more than {number(limit)} need approval."
        case "duration_s":
            return f"{duration_exact(asked)}; longer than {duration_exact(limit)} needs approval."
        case "priority":
            return f"Priority {asked}; above {limit} needs approval."
        case "idle_timeout_s":
            long = "No idle time-out" if asked == NEVER_S else f"Idle time-out of {duration_exact(asked)}"
            return f"{long}; longer than {duration_exact(limit)} needs approval."
        case "may_evict":
            return "It may evict others; that needs approval in this workspace."
    return "It skips the checks of nodes; that needs approval in this workspace."


def shapes_of(slice_: Slice) -> list[str]:
    """Returns shapes that its clusters have or can order and its policy allows."""
    shapes = {shape for shape, *_ in (*_NODE_KINDS_OF_SLICE([slice_.pk]), *_kinds_to_order(slice_))}
    return sorted(shape for shape in shapes if not slice_.shapes or shape in slice_.shapes)


def shapes_anywhere() -> list[str]:
    """Returns shapes that any cluster has or can order."""
    return sorted({shape for shape, *_ in (*_NODE_KINDS.all(), *_TO_ORDER.all())})


def value_faults(spec: GprSpec) -> list[tuple[str, str]]:
    """Returns the faults that the request would have in every workspace."""
    faults = [("name", text) for text in _name_faults(spec.name)]
    for field_name, (least, most) in BOUNDS.items():
        if (value := getattr(spec, field_name)) is not None and not least <= value <= most:
            faults.append((field_name, f"Must be from {number(least)} to {number(most)}."))
    if spec.duration_s < 1:
        faults.append(("duration_s", "Must be at least one second."))
    if len(str(spec.model)) > MODEL_MAX_CHARS:
        faults.append(("model", f"Must be shorter than {MODEL_MAX_CHARS} characters."))
    return faults + _idle_faults(spec)


def _faults(spec: GprSpec, now: datetime, kept_start_at: datetime | None) -> list[tuple[str, str]]:
    return value_faults(spec) + _shape_faults(spec) + _cluster_faults(spec) + _start_faults(spec, now, kept_start_at)


def _name_faults(name: str) -> list[str]:
    if not name.strip() or len(name) > NAME_MAX_CHARS:
        return [f"Give it a name of 1 to {NAME_MAX_CHARS} characters."]
    return [fault] if (fault := text_fault(name)) else []


def _idle_faults(spec: GprSpec) -> list[tuple[str, str]]:
    asked_s = spec.idle_timeout_s
    if not asked_s or IDLE_MIN_S <= asked_s <= settings.EGS_DURATION_MAX_S:
        return []
    least, most = duration_exact(IDLE_MIN_S), duration_exact(settings.EGS_DURATION_MAX_S)
    return [("idle_timeout_s", f"Must be from {least} to {most}, or 0 for never.")]


def _shape_faults(spec: GprSpec) -> list[tuple[str, str]]:
    if not spec.shape:
        return [] if spec.min_gpu_memory_gib else [("shape", "Name a shape, or say how much memory each GPU needs at least.")]
    known = shapes_of(spec.slice)
    if spec.shape in known:
        return []
    offered = f"It may ask for {', '.join(known)}." if known else "Its clusters have no GPUs that its policy allows."
    return [("shape", f"No cluster of workspace {spec.slice.name} has this shape. {offered}")]


def _cluster_faults(spec: GprSpec) -> list[tuple[str, str]]:
    allowed = set(spec.slice.clusters.values_list("pk", flat=True)) if spec.clusters else set()
    if all(cluster.pk in allowed for cluster in spec.clusters):
        return []
    return [("clusters", f"Workspace {spec.slice.name} may not use one of these clusters.")]


def _start_faults(spec: GprSpec, now: datetime, kept_start_at: datetime | None) -> list[tuple[str, str]]:
    start_at = spec.earliest_start_at
    if spec.is_booking and spec.after is not None:
        return [("after", "A booking starts at its own time, not after another request.")]
    if start_at is None:
        return [("earliest_start_at", "Say when the booking starts.")] if spec.is_booking else []
    if spec.is_booking and start_at != kept_start_at and start_at < now + BOOKING_AHEAD:
        return [("earliest_start_at", f"A booking starts at least {duration_exact(BOOKING_AHEAD.total_seconds())} from now.")]
    if start_at == kept_start_at or now - CLOCK_SLACK <= start_at <= now + EARLIEST_START_MAX:
        return []
    return [("earliest_start_at", "Must lie between now and a year from now.")]


def beyond_end(slice_: Slice, *, start_at: datetime, duration_s: int, now: datetime) -> OverPolicy | None:
    """Returns the refusal of what would end after its workspace does."""
    ends_at = slice_.ends_at
    if ends_at is None or start_at + timedelta(seconds=duration_s) <= ends_at:
        return None
    if ends_at <= now:
        return OverPolicy(f"Workspace {slice_.name} ended at {utc(ends_at)}. Ask an administrator.", limit="ends_at", most=0)
    most_s = max(0, int((ends_at - start_at).total_seconds()))
    advice = f"From {utc(start_at)} it may take {duration_exact(most_s)} at most" if most_s else "Start before that"
    return OverPolicy(
        f"Workspace {slice_.name} ends at {utc(ends_at)}. {advice}, or ask an administrator for a later end.",
        limit="ends_at",
        most=most_s,
    )


def _refuse_beyond_quota(spec: GprSpec) -> None:
    """Raises OverPolicy for a request beyond its quota even with nothing else held."""
    limited = limits_of([spec.slice.pk, spec.slice.project_id])
    limits = {quota.shape: quota for quota in sorted(limited, key=lambda quota: -(quota.most_gpus or 0))}  # the smallest of each shape
    sizes = _sizes_meant(spec) if limits else {}
    least = {shape: spec.nodes * (spec.gpus_per_node or size) for shape, size in sizes.items()}
    over = {shape: limits[shape].most_gpus or 0 for shape in least if shape in limits and least[shape] > (limits[shape].most_gpus or 0)}
    if not over or len(over) < len(least):
        return
    shape, most = max(over.items(), key=lambda item: (item[1], item[0]))
    raise OverPolicy(
        f"The quota of {whose(limits[shape])} allows {plural(most, 'GPU')} of {shape} at once; "
        f"{plural(least[shape], 'GPU')} were asked for. {_within(most, least[shape] // spec.nodes)}",
        limit="most_gpus",
        most=most,
    )


def _within(most: int, gpus_per_node: int) -> str:
    if most >= gpus_per_node:
        return f"Ask for {plural(most // gpus_per_node, 'node')} with {plural(gpus_per_node, 'GPU')} each at most."
    return f"Ask for {plural(most, 'GPU')} on one node at most." if most else "Ask for another shape, or an administrator for more."


def _gpu_count(spec: GprSpec) -> int:
    return spec.nodes * (spec.gpus_per_node or _largest_gpu_count(spec))


def _largest_gpu_count(spec: GprSpec) -> int:
    # For whole nodes, count the largest that may be used.
    to_come = (gpus for shape, gpus in _kinds_to_order(spec.slice) if shape == spec.shape)
    return max([1, *_sizes_meant(spec).values(), *to_come])


def _sizes_meant(spec: GprSpec) -> dict[str, int]:
    """Returns the GPUs of the largest node of each shape that it may get."""
    kinds = _NODE_KINDS_IN([cluster.pk for cluster in spec.clusters]) if spec.clusters else _NODE_KINDS_OF_SLICE([spec.slice.pk])
    sizes: dict[str, int] = {}
    for shape, memory_gib, gpu_count in kinds:
        is_allowed = not spec.slice.shapes or shape in spec.slice.shapes
        if shape == spec.shape if spec.shape else is_allowed and memory_gib >= (spec.min_gpu_memory_gib or 0):
            sizes[shape] = max(gpu_count, sizes.get(shape, 0))
    return sizes


def _kinds_to_order(slice_: Slice) -> list[tuple[str, int]]:
    return _KINDS_TO_ORDER([slice_.pk]) if slice_.may_order else []

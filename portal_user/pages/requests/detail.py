"""Shows one GPU request and its fragments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.urls import reverse

from accounts.models import User
from accounts.policy import Verb, may
from core.pages import words
from core.pages.parts import EventRow, GpuTile, NodeRow, Pair
from gpr.approvals.selectors import ApproverRights
from gpr.followers.selectors import followers_of, predecessors_of
from gpr.idle.selectors import idleness_of, may_keep, timeout_of
from gpr.models import ENDED, AfterCondition, Gpr, GprState, Promise, PromiseMove
from gpr.queue.explanations import VisibleBlocker, VisibleExplanation
from gpr.queue.status import NOT_PLANNED, QueueStatus, queue_statuses
from gpr.quotas.borrowing import borrowing_of
from gpr.replacement.selectors import Replacement, ReplacementOutcome, replacements_of
from gpr.requests.editing import spec_of
from gpr.requests.selectors import events_visible_to, gpr_for, gprs_visible_to, names_visible_to
from gpr.supplies.orders import orders_under
from inventory.models import Gpu, Reservation, ReservationState, StepResult
from journal.models import Event
from planner.causes import Cause
from planner.plan import Reason
from portal_shared.access import PageRequest, moment_formatter
from portal_shared.parts.gpr_box import ask_of, shown_state
from portal_shared.parts.promises import CAUSE_WORDS
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.pages.capacity import stock_for
from portal_user.pages.notices import EvictionNotice, notice, queued_since, waits_again, work_gone
from portal_user.pages.requests.hero import Hero, ReadForHero, hero
from portal_user.pages.requests.listing import may_create
from portal_user.pages.requests.one_at_a_time import OneAtATime
from portal_user.pages.requests.outcomes import events_for
from portal_user.pages.requests.steps import StepPanel, step_panels
from portal_user.pages.requests.use import Use
from protocol.assignments import Desired, Phase

S = GprState
NODES_SHOWN, EVENTS_SHOWN, STEPS_READ = 100, 40, 2_000
WAITS = frozenset({S.QUEUED, S.PENDING_APPROVAL})
MOVES_SHOWN = 20
PARTS = ("now", "use", "nodes", "steps", "why", "events")
LEAVING = frozenset({Phase.EXITING, Phase.FAILED, Phase.RELEASED})
PHASE_WORDS = {
    Phase.PENDING: "not begun",
    Phase.ENTERING: "checks run",
    Phase.ENTERED: "ready",
    Phase.ACTIVE: "open",
    Phase.FAILED: "failed",
    Phase.EXITING: "leaves",
    Phase.RELEASED: "released",
}


@dataclass(frozen=True, slots=True)
class ActionUrls:
    """A URL is empty if the action is not allowed."""

    edit: str = ""
    cancel: str = ""
    extend: str = ""
    release: str = ""
    keep: str = ""
    again: str = ""
    approve: str = ""
    reject: str = ""
    why_not: str = ""  # why who decides on it may not approve it

    @classmethod
    def of(cls, gpr: Gpr, *, is_writable: bool, is_asking: bool, why_not: str, has_notice: bool, may_keep_it: bool) -> ActionUrls:
        if not is_writable:
            return cls()
        waits, holds = gpr.state in WAITS, gpr.state in {S.PROVISIONING, S.ACTIVE}
        return cls(
            edit=reverse("gpr-edit", args=[gpr.pk]) if waits else "",
            cancel=reverse("gpr-delete", args=[gpr.pk]) if waits else "",
            extend=reverse("gpr-extend", args=[gpr.pk]) if gpr.state == S.ACTIVE and not has_notice else "",
            release=reverse("gpr-release", args=[gpr.pk]) if holds else "",
            keep=reverse("gpr-keep", args=[gpr.pk]) if may_keep_it else "",
            again=f"{reverse('gpr-create', args=[gpr.slice.name])}?from={gpr.pk}" if not waits else "",
            approve=reverse("gpr-approve", args=[gpr.pk]) if is_asking and not why_not else "",
            reject=reverse("gpr-reject", args=[gpr.pk]) if is_asking else "",
            why_not=why_not,
        )


@dataclass(frozen=True, slots=True)
class PromiseChange:
    at: datetime
    old_at: datetime
    new_at: datetime
    cause: str


@dataclass(frozen=True, slots=True)
class OrderedNodes:
    """Describes nodes that were ordered together for its start."""

    text: str
    expected_at: datetime
    is_late: bool


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Shows a failed node and its replacement."""

    at: datetime
    text: str
    is_late: bool


@dataclass(frozen=True, slots=True)
class BlockerLine:
    """Names a request that it waits for. A blocker of another workspace has only a name."""

    name: str
    url: str
    size: str  # "holds 2 nodes"
    until: datetime | None

    @classmethod
    def of(cls, told: VisibleBlocker) -> BlockerLine:
        url = reverse("gpr", args=[told.id]) if told.id else ""
        return cls(told.name, url, _size(told), told.until)


@dataclass(frozen=True, slots=True)
class StartReasons:
    """Tells the reasons for its start: what it waits for, and how its promise moved."""

    title: str
    alone: OneAtATime | None
    sentence: str
    again: str  # why it waits again after an earlier run
    gone: str  # that the Jobs of an earlier run failed
    coming: tuple[OrderedNodes, ...]
    blockers: tuple[BlockerLine, ...]
    borrowing: str
    reasons: tuple[str, ...]
    first_promised_at: datetime | None
    promised_at: datetime | None
    moves: tuple[PromiseChange, ...]


@dataclass(frozen=True, slots=True)
class GprDetailPage:
    """Parts that were not asked for stay empty."""

    id: UUID
    name: str
    state: str
    is_ended: bool
    version: int
    url: str
    slice_url: str
    mark: WorkspaceMark
    shell: Shell | None
    actions: ActionUrls | None = None
    hero: Hero | None = None
    use: Use | None = None  # nothing to use, or not asked for
    nodes: tuple[NodeRow, ...] = ()
    nodes_trouble: tuple[str, ...] = ()
    nodes_hint: str = ""
    nodes_hidden: int = 0
    changes: tuple[NodeChange, ...] = ()
    panels: tuple[StepPanel, ...] = ()
    why: StartReasons | None = None
    asked: tuple[Pair, ...] = ()
    events: tuple[EventRow, ...] = ()

    @property
    def short_id(self) -> str:
        return f"gpr-{str(self.id)[:8]}"

    @classmethod
    def build(cls, request: PageRequest, pk: UUID, *, part: str = "") -> GprDetailPage:
        """Reads only the data of `part`, if there is one."""
        gpr = gpr_for(request.user, pk, rows=gprs_visible_to(request.user).annotate(job_pk=F("job")))
        wanted = frozenset({part} if part else PARTS)
        nodes = _nodes(gpr, with_gpus="nodes" in wanted) if gpr.run and wanted & {"now", "nodes", "steps"} else []
        panels = step_panels(gpr, nodes, _results(gpr), say=moment_formatter(request)) if nodes and wanted & {"now", "steps"} else []
        statuses = (
            queue_statuses([gpr], actor=request.user, now=request.now, format_time=moment_formatter(request))
            if wanted & {"now", "why"}
            else {}
        )
        status = statuses.get(gpr.pk, NOT_PLANNED)
        warning = notice(gpr) if "now" in wanted else None
        is_writable = bool(wanted & {"now", "use"}) and request.may_write and may(request.user, Verb.CHANGE, gpr)
        # Everyone who may change it may also create requests.
        is_editor = is_writable or (not part and may_create(request, gpr.slice))
        return cls(
            id=gpr.pk,
            name=gpr.name,
            state=shown_state(gpr),
            is_ended=gpr.state in ENDED,
            version=gpr.version,
            url=reverse("gpr", args=[gpr.pk]),
            slice_url=reverse("workspace", args=[gpr.slice.name]),
            mark=WorkspaceMark.of(gpr.slice),
            shell=None if part else Shell.user(request, page="requests", slice_=gpr.slice, may_create=is_editor),
            actions=_actions(gpr, request, is_writable, has_notice=warning is not None) if "now" in wanted else None,
            hero=_hero(gpr, request, status, nodes, panels, warning) if "now" in wanted else None,
            use=Use.of(gpr, request, may_change=is_writable) if "use" in wanted else None,
            nodes=tuple(_node_row(node) for node in nodes[:NODES_SHOWN]) if "nodes" in wanted and gpr.state not in WAITS else (),
            nodes_trouble=tuple(f"{node.node.name}: {node.failure}" for node in nodes[:NODES_SHOWN] if node.failure),
            nodes_hint=", ".join(filter(None, [gpr.cluster.name if gpr.cluster else "", ask_of(gpr)])),
            nodes_hidden=max(len(nodes) - NODES_SHOWN, 0),
            changes=tuple(_change(each) for each in replacements_of(gpr)) if "nodes" in wanted else (),
            panels=tuple(panels),
            why=_why(gpr, request, status.explanation if gpr.state == S.QUEUED else None) if "why" in wanted else None,
            asked=() if part else tuple(_asked(gpr, request.user)),
            events=_events(gpr, request.user) if "events" in wanted else (),
        )


def _actions(gpr: Gpr, request: PageRequest, is_writable: bool, *, has_notice: bool) -> ActionUrls:
    is_asking = is_writable and gpr.state == S.PENDING_APPROVAL and may(request.user, Verb.APPROVE, gpr)
    why_not = ApproverRights.load(request.user, now=request.now).why_not(gpr, now=request.now) if is_asking else ""
    may_keep_it = is_writable and idleness_of(gpr) is not None and may_keep(request.user, gpr)
    given = {"is_writable": is_writable, "is_asking": is_asking, "has_notice": has_notice, "may_keep_it": may_keep_it}
    return ActionUrls.of(gpr, why_not=why_not, **given)


def _nodes(gpr: Gpr, *, with_gpus: bool) -> list[Reservation]:
    """Returns nodes of its last run, without released spares that never joined."""
    rows = Reservation.objects.filter(gpr=gpr, run=gpr.run).select_related("node").order_by("node__name", "pk")
    rows = rows.exclude(replaces__isnull=False, joined_at=None, state=ReservationState.RELEASED)
    return list(rows.prefetch_related("gpus__gpu") if with_gpus else rows)


def _results(gpr: Gpr) -> list[StepResult]:
    """Returns the oldest first. If there are too many, the newest attempts of each step and node."""
    nth = Window(RowNumber(), partition_by=["reservation", "step"], order_by=["-started_at", "-pk"])
    rows = StepResult.objects.filter(reservation__gpr=gpr, reservation__run=gpr.run).annotate(nth=nth)
    newest = rows.order_by("nth", "-started_at", "-pk").prefetch_related("results")[:STEPS_READ]
    return sorted(newest, key=lambda row: (row.started_at, row.pk))


def _hero(
    gpr: Gpr,
    request: PageRequest,
    status: QueueStatus,
    nodes: Sequence[Reservation],
    panels: Sequence[StepPanel],
    warning: EvictionNotice | None,
) -> Hero:
    event = events_for([gpr]).get(gpr.pk)
    used = _used(gpr) if gpr.state in ENDED else ""
    return hero(gpr, ReadForHero(request.now, request.zone, queued_since(gpr), status.position, event, nodes, panels, warning, used))


def _used(gpr: Gpr) -> str:
    """It is told some minutes after the end."""
    return Event.objects.filter(kind="gpr.used", gpr_id=gpr.pk).values_list("message", flat=True).first() or ""


def _gpu_title(gpu: Gpu, *, is_whole: bool) -> str:
    """Names no hardware for a part of a node, since nobody knows which GPUs the cluster chose."""
    return f"{gpu.model}, {gpu.memory_gib} GiB" + (f", {gpu.hardware_uuid or gpu.uuid}" if is_whole else "")


def _node_row(row: Reservation) -> NodeRow:
    gpus = sorted((reserved.gpu for reserved in row.gpus.all()), key=lambda gpu: gpu.index)
    is_held = row.state == ReservationState.HELD
    return NodeRow(
        name=row.node.name,
        state=("draining" if row.phase in LEAVING else "held") if is_held else "free",
        gpus=tuple(GpuTile(gpu.index, str(gpu.index), title=_gpu_title(gpu, is_whole=len(gpus) == row.node.gpu_count)) for gpu in gpus),
        place=row.node.rack and f"rack {row.node.rack.removeprefix('rack-')}",
        note=_note(row),
    )


def _note(row: Reservation) -> str:
    told = PHASE_WORDS[Phase(row.phase)]
    if row.is_coming:
        return f"spare: {told}"
    return f"{told}, to be replaced" if row.failing_at is not None and row.desired == Desired.PRESENT else told


def _change(each: Replacement) -> NodeChange:
    match each.outcome:
        case ReplacementOutcome.REPLACED:
            text = f"{each.spare} took the place of {each.node}. {each.why}"
        case ReplacementOutcome.ENTERING:
            text = f"{each.spare} is being checked, to take the place of {each.node}. {each.why}"
        case ReplacementOutcome.FAILED:
            text = f"{each.spare} did not take the place of {each.node}. {each.why_not}"
        case _:
            text = f"{each.node} fails. {each.why} {each.why_not or 'A spare is looked for.'}"
    return NodeChange(
        each.joined_at or each.since_at or each.failing_at,
        text.strip(),
        each.outcome in {ReplacementOutcome.FAILED, ReplacementOutcome.SOUGHT},
    )


def _why(gpr: Gpr, request: PageRequest, told: VisibleExplanation | None) -> StartReasons:
    promise, moves = gpr.current_promise, list(gpr.promise_moves.order_by("-at", "-pk")[:MOVES_SHOWN])
    names = names_visible_to(request.user, {move.cause_id for move in moves if move.cause != Cause.NODE_FAILURE})
    return StartReasons(
        title="Why it starts when it does" if gpr.state in WAITS else "Why it started when it did" if gpr.run else "Start",
        alone=_alone(gpr, request, told),
        sentence=told.sentence if told else _why_plain(gpr, request),
        again=waits_again(gpr, request),
        gone=work_gone(gpr),
        coming=tuple(_ordered_nodes(promise, request)) if gpr.state == S.QUEUED else (),
        blockers=tuple(BlockerLine.of(each) for each in told.blockers) if told else (),
        borrowing=borrowing_of(gpr, now=request.now),
        reasons=tuple(gpr.approval_reasons) if gpr.state == S.PENDING_APPROVAL else (),
        first_promised_at=promise.first_promised_start_at if promise else None,
        promised_at=promise.promised_start_at if promise else None,
        moves=tuple(PromiseChange(move.at, move.old_start_at, move.new_start_at, _cause(move, names)) for move in moves),
    )


def _alone(gpr: Gpr, request: PageRequest, told: VisibleExplanation | None) -> OneAtATime | None:
    if told is None or told.reason != Reason.WAITS_FOR_SLICE:
        return None
    return OneAtATime.of(request, spec_of(gpr), told, stock_for(request.user, now=request.now, slice_=gpr.slice))


def _size(told: VisibleBlocker) -> str:
    """Returns e.g. `holds 2 nodes`, `waits for 2 × 4 GPUs`."""
    if not told.nodes:
        return ""
    size = words.ask(told.nodes, told.gpus_per_node) + (" GPUs" if told.gpus_per_node else "")
    return f"{'holds' if told.is_running else 'waits for'} {size}"


def _ordered_nodes(promise: Promise | None, request: PageRequest) -> Iterable[OrderedNodes]:
    """Supplies are not secret: offers name them."""
    for (name, expected_at), orders in groupby(orders_under(promise), key=lambda order: (order.supply.name, order.expected_at)):
        is_late = request.now >= expected_at
        what = f"{words.plural(len(list(orders)), 'node')} ordered from {name}"
        yield OrderedNodes(f"{what}, late since" if is_late else f"{what}, expected", expected_at, is_late)


def _why_plain(gpr: Gpr, request: PageRequest) -> str:
    if gpr.state == S.PENDING_APPROVAL:
        return "It is not planned before an administrator has approved it. It needs approval for:"
    if gpr.provisioning_at is None:
        return "It never started." if gpr.state in ENDED else "It is about to be planned."
    waited = words.duration((gpr.provisioning_at - queued_since(gpr)).total_seconds())
    return f"It started at {words.moment(gpr.provisioning_at, now=request.now, zone=request.zone)}, after {waited} in the queue."


def _cause(move: PromiseMove, names: Mapping[str, str]) -> str:
    """Nodes may be named, since the workspace may use their cluster. Others' requests may not."""
    text = CAUSE_WORDS[Cause(move.cause)] if move.cause in set(Cause) else move.cause
    named = names.get(move.cause_id, "")
    return f"{text} ({named})" if named and move.cause != Cause.CHANGED else text


def _asked(gpr: Gpr, actor: User) -> Iterable[Pair]:
    clusters = [cluster.name for cluster in gpr.clusters.all()]
    yield Pair("Asks for", f"{ask_of(gpr)}, {words.duration(gpr.duration_s)}")
    yield Pair("Priority", str(gpr.priority), _band(gpr.priority))
    yield Pair("Clusters", ", ".join(clusters) or "any of the workspace")
    if before := predecessors_of([gpr], actor=actor).get(gpr.pk):
        yield Pair("Starts after", before.name, "however it ends" if gpr.after_condition == AfterCondition.ANY else "if it ends well")
    if behind := followers_of(gpr, actor=actor) if gpr.state not in ENDED else []:
        yield Pair("Followed by", ", ".join(each.name for each in behind))
    if gpr.node_type:
        yield Pair("Node type", gpr.node_type)
    if gpr.within:
        yield Pair("All nodes in", gpr.get_within_display())
    yield Pair("RDMA", "only nodes with it" if gpr.rdma else "not needed")
    yield Pair("Evictable", "yes" if gpr.evictable else "no")
    yield Pair("May evict", "yes" if gpr.may_evict else "no")
    if gpr.cluster:
        force, grace = words.duration(gpr.cluster.drain_force_after_s), words.duration(gpr.cluster.drain_grace_s)
        yield Pair("At its end", f"pods get {force} to stop, then are ended by force", f"a disruption budget holds them {grace} at most")
    yield Pair("Released when idle", _idle(gpr), "" if gpr.idle_timeout_s is not None else "by the policy")
    yield Pair("Queue again", "when evicted or failed" if gpr.requeue_on_failure else "never")
    yield Pair("Entry checks", "all" if gpr.run_checks else "the short ones")
    yield Pair("Model", ", ".join(f"{value}" if name == "name" else f"{name} {value}" for name, value in gpr.model.items()))
    yield Pair("Filed by", gpr.owner.name)
    if gpr.template is not None:
        yield Pair("Template", gpr.template.name)
    if filed := getattr(gpr, "cluster_request", None):
        yield Pair("Filed as", filed.sentence)
    yield Pair("Id", str(gpr.pk), is_code=True)


def _idle(gpr: Gpr) -> str:
    timeout_s = timeout_of(gpr)
    return f"for {words.duration_exact(timeout_s)}" if timeout_s else "never"


def _band(priority: int) -> str:
    return "low" if priority <= 100 else "medium" if priority <= 200 else "high"


def _events(gpr: Gpr, actor: User) -> tuple[EventRow, ...]:
    # The panel of steps shows the passed ones.
    rows = events_visible_to(actor).filter(gpr_id=gpr.pk).exclude(kind="node.step_passed")[:EVENTS_SHOWN]
    return tuple(EventRow(row.at, _told_by(row), row.severity, row.new if row.kind == "gpr.transition" else "") for row in rows)


def _told_by(event: Event) -> str:
    return f"{event.message} ({event.actor.name})" if event.actor else event.message

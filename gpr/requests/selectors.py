"""Has the queries for GPRs, templates, evictions and Events that a user may see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast
from uuid import UUID

from django.db.models import Count, DateTimeField, Exists, OuterRef, Prefetch, Q, QuerySet, Value, Window
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from django.db.models.functions import Coalesce, RowNumber

from accounts.models import User
from accounts.policy import ObjectKind, Verb, is_overseer, may, may_all, visible_rows
from core.clock import db_now
from core.errors import NotAllowed, StaleState
from core.rest.references import one_by_id, one_by_reference
from core.written_sql import IdParam, TimeParam, WrittenQuery
from gpr.models import BookingSeries, Eviction, EvictionVictim, Gpr, GprState, GprTemplate
from inventory.models import Cluster, Node, Reservation, ReservationState, StepResult
from journal.hints import ALERTS, INVENTORY, SLICE, slice_topic
from journal.models import Event
from slices.deputies.selectors import deputized_projects
from slices.models import ProjectAdmin, Slice
from slices.selectors import own_of, slices_visible_to

# The planner considers requests in this order (planner/board/waiting.py); the index gpr_queue matches it.
TURN = ("turn_share", "turn_key", "turn_at", "id")
QUEUE_ORDER = ("-priority", *TURN)
# Requests in the order of their planned starts. A request without one comes last; it gets a far time, since a cursor cannot hold a null.
STARTS_AT = Coalesce("planned_start_at", Value(datetime(9000, 1, 1, tzinfo=UTC)), output_field=DateTimeField())
START_ORDER = ("starts_at", "created_at", "id")
# Orders requests that wait for approval by the last moment for a decision.
DUE_AT = Coalesce("decide_by_at", Value(datetime(9000, 1, 1, tzinfo=UTC)), output_field=DateTimeField())
DUE_ORDER = ("due_at", "created_at", "id")

# The columns that the list of the API shows.
PLANNED_BY = frozenset({"state_changed_at", "turn_at", "place_share", "place_key", "marks_passed", "turn_share", "turn_key"})
LISTED = [field.name for field in Gpr._meta.concrete_fields if field.name not in PLANNED_BY]
LISTED += ["slice__name", "slice__project", "owner__name", "template__name"]
LISTED += ["cluster__name", "cluster__drain_grace_s", "cluster__drain_force_after_s"]
LISTED += ["promise__promised_start_at", "promise__slot_nodes", "promise__lost_cause", "promise__p50_at", "promise__p90_at"]
LISTED += [
    "cluster_request__namespace",
    "cluster_request__name",
    "cluster_request__requester",
    "cluster_request__is_auto",
    "cluster_request__cluster__name",
]
LISTED += ["slice__idle_timeout_s", "idle_box__run", "idle_box__idle_since_at", "idle_box__kept_at", "idle_box__warned_count"]
HELD = ["gpr", "node__name", "phase", "failure", "failing_at", "state", "desired", "replaces", "joined_at"]
# The columns that the API's queue shows.
WAITING = ["name", "slice__name", "owner__name", "priority", "shape", "nodes", "gpus_per_node", "duration_s", "state", "created_at"]
WAITING += ["queued_at", "planned_start_at", "explanation", "promise__promised_start_at"]


PLATFORM_TEMPLATE = "Only an administrator of the platform writes templates of the platform. Name a workspace to make one of your own."
REFUSALS = {
    Verb.CHANGE: "Only its owner, an owner of the workspace or an administrator may change it.",
    Verb.APPROVE: "Only an administrator of its project or of the platform approves or rejects it, or a deputy of one.",
    Verb.DECIDE: "Only an administrator of its project or of the platform decides on it.",
}


def gprs_visible_to(actor: User) -> QuerySet[Gpr]:
    return visible_rows(gprs_joined(), actor, _in_own_slices(actor))


def approvals_visible_to(actor: User, *, now: datetime) -> QuerySet[Gpr]:
    """Returns the requests that wait for the actor's decision, or for that of an approver whose deputy he is. An auditor sees all."""
    run = Q() if actor.bound_to else Q(slice__project__in=ProjectAdmin.objects.filter(user=actor).values("project"))
    rows = gprs_joined().filter(state=GprState.PENDING_APPROVAL).select_related("slice__project").annotate(due_at=DUE_AT)
    return visible_rows(rows, actor, _for_deputies(actor, now) | run)


def gprs_joined() -> QuerySet[Gpr]:
    joined = ("slice", "owner", "cluster", "promise", "cluster_request__cluster", "template", "idle_box")
    return Gpr.objects.select_related(*joined).prefetch_related("clusters")


def _for_deputies(actor: User, now: datetime) -> Q:
    """Deputies see no more than what waits for them."""
    return Q(state=GprState.PENDING_APPROVAL, slice__project__in=deputized_projects(actor, now))


def gprs_known_to_approver(actor: User) -> QuerySet[Gpr]:
    return visible_rows(gprs_joined(), actor, _in_own_slices(actor) | _for_deputies(actor, db_now()))


def with_nodes(rows: QuerySet[Gpr]) -> QuerySet[Gpr]:
    """Prefetches only the clusters where each may run, as `named_clusters`, and the reservations that it holds now, as `held_now`."""
    named = Prefetch("clusters", queryset=Cluster.objects.only("name"), to_attr="named_clusters")
    held = Reservation.objects.filter(state=ReservationState.HELD).select_related("node").only(*HELD)
    held_now = Prefetch("reservations", queryset=held.order_by("node__name", "pk"), to_attr="held_now")
    return rows.prefetch_related(None).prefetch_related(named, held_now)


def as_filed(gpr: Any, clusters: Sequence[Cluster]) -> Gpr:
    """Sets what `with_nodes(gprs_visible_to(…))` would load of a GPR that was filed right now."""
    gpr.named_clusters, gpr.held_now = list(gpr.clusters.only("name") if len(clusters) > 1 else clusters), []
    gpr._prefetched_objects_cache = {"promise_moves": []}
    for name in ("promise", "cluster_request", "idle_box"):
        gpr._state.fields_cache.setdefault(name, None)
    return cast(Gpr, gpr)


def gpr_for(
    actor: User, gpr_id: str | UUID, *, verb: Verb = Verb.SEE, version: int | None = None, rows: QuerySet[Gpr] | None = None
) -> Gpr:
    """Raises NotFound, NotAllowed, or StaleState for an old `version`."""
    if rows is None:
        rows = gprs_known_to_approver(actor) if verb == Verb.APPROVE else gprs_visible_to(actor)
    gpr = one_by_id(rows, gpr_id, what="GPR")
    if verb != Verb.SEE and not may(actor, verb, gpr):
        raise NotAllowed(REFUSALS[verb])
    if version is not None and version != gpr.version:
        raise StaleState(f"This GPR is at version {gpr.version}, you gave {version}. Read it again and decide again.", version=gpr.version)
    return gpr


def series_visible_to(actor: User) -> QuerySet[BookingSeries]:
    rows = BookingSeries.objects.select_related("slice", "owner")
    return visible_rows(rows, actor, _in_own_slices(actor))


def series_for(actor: User, series_id: str | UUID, *, write: bool = False) -> BookingSeries:
    """Raises NotFound or NotAllowed."""
    series = one_by_id(series_visible_to(actor).prefetch_related("occurrences__gpr"), series_id, what="booking series")
    if write and not may(actor, Verb.CHANGE, series):
        raise NotAllowed("Only its owner, an owner of the workspace or an administrator may change it.")
    return series


def templates_visible_to(actor: User) -> QuerySet[GprTemplate]:
    """Returns those of the actor's slices, and those of the platform."""
    rows = GprTemplate.objects.select_related("slice", "cluster")
    return visible_rows(rows, actor, _in_own_slices(actor) | Q(slice=None))


def templates_of(rows: QuerySet[GprTemplate], own: Q) -> QuerySet[GprTemplate]:
    """Returns with `own` the templates of one slice. A template of the platform is hidden by one of the slice that has its name."""
    hiding = GprTemplate.objects.filter(own, name=OuterRef("name"))
    return rows.filter(own | (Q(slice=None) & ~Exists(hiding)))


def template_for(actor: User, reference: str | UUID, *, slice_: Slice | None = None, write: bool = False) -> GprTemplate:
    """`slice_`: one that a request of this slice may name. Raises NotFound, NotAllowed, or Conflict for an ambiguous name."""
    rows = templates_visible_to(actor)
    template = one_by_reference(templates_of(rows, Q(slice=slice_)) if slice_ else rows, reference, what="template")
    if write and not may(actor, Verb.CHANGE, template):
        if template.slice is None:
            raise NotAllowed(PLATFORM_TEMPLATE)
        raise NotAllowed(f"In workspace {template.slice.name} this needs the role owner. Ask one of its owners.")
    return template


def queue_visible_to(actor: User) -> QuerySet[Gpr]:
    rows = Gpr.objects.filter(state=GprState.QUEUED).select_related("slice", "owner", "promise").only(*WAITING)
    return visible_rows(rows, actor, _in_own_slices(actor)).annotate(starts_at=STARTS_AT).order_by(*START_ORDER)


def start_positions(gprs: Iterable[Gpr]) -> dict[UUID, int]:
    """Returns positions by planned start among all waiting requests, from 1. Runs one query."""
    planned = [(gpr, gpr.planned_start_at) for gpr in gprs if gpr.state == GprState.QUEUED and gpr.planned_start_at is not None]
    if len(planned) < 2:  # to count those before one takes a fifth of the time
        return {gpr.pk: 1 + sum(_BEFORE(start=start_at, created=gpr.created_at, id=gpr.pk)) for gpr, start_at in planned}
    starts = {gpr.pk: start_at for gpr, start_at in planned}
    place = Window(RowNumber(), order_by=["planned_start_at", "created_at", "id"])
    # Nothing behind the last of these counts, unless a plan has just moved one of them.
    counted = Q(planned_start_at__lte=max(starts.values())) | Q(pk__in=starts)
    rows = _PLANNED.filter(counted).annotate(place=place)
    # Django applies a filter that mentions the window after it has numbered the rows, so the ids must stand in the same Q.
    return dict(rows.filter(Q(place__lt=1) | Q(pk__in=starts)).values_list("pk", "place"))


_PLANNED: Final = Gpr.objects.filter(state=GprState.QUEUED, planned_start_at__isnull=False).order_by()
_IS_BEFORE: Final = TupleLessThan(Tuple("planned_start_at", "created_at", "id"), (TimeParam("start"), TimeParam("created"), IdParam("id")))
_BEFORE: Final = WrittenQuery(_PLANNED.filter(_IS_BEFORE).values("state").annotate(count=Count("pk")).values_list("count", flat=True))


def before(gpr: Gpr) -> Q:
    """Returns the requests before this one in its priority, as a range of the index gpr_queue."""
    return Q(TupleLessThan(Tuple(*TURN), _turn(gpr)))


def behind(gpr: Gpr) -> Q:
    return Q(TupleGreaterThan(Tuple(*TURN), _turn(gpr)))


def _turn(gpr: Gpr) -> tuple[Any, ...]:
    return tuple(getattr(gpr, name) for name in TURN)


def by_id(text: str) -> Q:
    """Matches a whole id or the prefix that pages show; an empty Q when `text` is no id."""
    digits = text.lower().removeprefix("gpr-").replace("-", "")
    if not 4 <= len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        return Q()
    return Q(pk__gte=UUID(digits.ljust(32, "0")), pk__lte=UUID(digits.ljust(32, "f")))


def steps_of(gpr: Gpr) -> QuerySet[StepResult]:
    return _steps().filter(reservation__gpr=gpr)


def steps_on(node: Node) -> QuerySet[StepResult]:
    """Shows all GPRs, so it is only for administrators."""
    return _steps().filter(reservation__node=node)


def _steps() -> QuerySet[StepResult]:
    return StepResult.objects.select_related("reservation__node").prefetch_related("results")


def names_visible_to(actor: User, gpr_ids: set[str]) -> dict[str, str]:
    known = gpr_ids - {""}
    if not known:
        return {}
    is_all = may_all(actor, Verb.SEE, ObjectKind.GPR)
    rows = _NAMES(list(map(UUID, known))) if is_all else _OWN_NAMES(list(map(UUID, known)), actor=actor.pk)
    return {str(pk): name for pk, name, slice_id in rows if is_all or not actor.bound_to or str(slice_id) in actor.bound_to}


_NAMES: Final = WrittenQuery(Gpr.objects.order_by().values_list("pk", "name", "slice_id"))
_OWN_NAMES: Final = WrittenQuery(
    Gpr.objects.filter(slice__in=Slice.objects.filter(own_of(IdParam("actor"))).values("pk"))
    .order_by()
    .values_list("pk", "name", "slice_id")
)


def evictions_visible_to(actor: User) -> QuerySet[Eviction]:
    """`is_known` on each eviction and victim: whether the actor may see that GPR."""
    known = gprs_visible_to(actor).values("pk")
    victims: Any = EvictionVictim.objects.select_related("gpr__slice").annotate(is_known=Exists(known.filter(pk=OuterRef("gpr"))))
    rows = Eviction.objects.select_related("gpr__slice").annotate(is_known=Exists(known.filter(pk=OuterRef("gpr"))))
    rows = rows.filter(Q(is_known=True) | Exists(victims.filter(is_known=True, eviction=OuterRef("pk"))))
    return rows.prefetch_related(Prefetch("victims", queryset=victims))


def events_visible_to(actor: User) -> QuerySet[Event]:
    return visible_rows(Event.objects.select_related("actor"), actor, Q(slice_id__in=slices_visible_to(actor).values("pk")))


def topics_of_events(actor: User) -> set[str]:
    """Returns the topics whose hints come with new Events that the actor may see; some come without a hint."""
    if is_overseer(actor):
        return {ALERTS, INVENTORY, SLICE}
    return {slice_topic(slice_id) for slice_id in slices_visible_to(actor).values_list("pk", flat=True)}


def _in_own_slices(actor: User) -> Q:
    return Q(slice__in=slices_visible_to(actor))

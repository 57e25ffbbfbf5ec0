"""Plans the queue and stores the plan: slots, promises, their moves and explanations.

Every writer of slots holds the plan lock: two planners at once would promise the same GPUs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import F, Q
from fast_update.fast import fast_update

from core.locks import in_turn, transaction_lock
from core.words import utc
from core.written_sql import WrittenQuery, rows_insert, rows_update, sent_together
from gpr.allocation.live import PLAN_RECORD, snapshot_load
from gpr.allocation.plan_faults import plan_faults_record
from gpr.allocation.rows import GprRow, PlanSummary, PromiseRow, plan_summaries
from gpr.allocation.snapshot import SLACK, Loaded, at
from gpr.events import gpr_event_record
from gpr.evictions.services import evictions_store
from gpr.models import Gpr, PlanRecord, Promise, PromiseMove, Shadow
from gpr.promises.forecasts import Range, forecasts_drop, forecasts_store, ranges_of
from gpr.quotas.fairness import usage_add
from gpr.supplies.orders import orders_follow
from inventory.models import Cluster
from journal.hints import PLAN, hint, slice_topic
from journal.models import Severity
from planner.basis import Basis
from planner.engine import plan, plan_newcomers, plan_starts
from planner.plan import BarePlacement, Blocker, Explanation, Placement, Plan, Remembered
from planner.plan import PromiseMove as PlannedMove
from planner.promises.live_board import Restored
from planner.promises.slack import ENDS_FADING
from planner.snapshot import Arrival, Moved, Slot, Snapshot
from planner.snapshot import Shadow as PlannerShadow

PLAN_LOCK: Final = "plan"
ROWS_AT_ONCE: Final = 500
BLOCKER_FIELDS: Final = tuple(field.name for field in fields(Blocker))  # `asdict` takes ten times as long


@dataclass(frozen=True, slots=True)
class Edited:
    """Holds a GPR as it was before its owner changed it."""

    gpr: Gpr
    clusters: tuple[Cluster, ...]


def plan_lock() -> None:
    """Hold the right to write slots until the transaction ends. Take it before any other lock."""
    transaction_lock(PLAN_LOCK)


@contextmanager
def plan_turn() -> Iterator[None]:
    """Around the transactions of people that take the plan lock: see `in_turn`."""
    with in_turn(PLAN_LOCK):
        yield


@transaction.atomic
def replan(
    *, now: datetime, moved: Moved | None = None, edited: Edited | None = None, explained: Set[UUID] | None = None
) -> tuple[Plan, Loaded]:
    """Plan the whole queue and store the plan; starts nothing.

    `explained`: the GPRs whose explanation is stored now; a later tick stores the others. None means all.
    """
    plan_lock()
    loaded = snapshot_load(now=now, with_memory=edited is not None)
    was = loaded.waiting(edited.gpr, edited.clusters) if edited is not None else None
    loaded = replace(loaded, snapshot=replace(loaded.snapshot, moved=moved, edited=was))
    since = _Process.basis if explained is None and loaded.record.explained == _Process.explained else None
    made = None if explained is None or explained else _on_live_board(loaded, plan_starts)
    made = made or plan_of(loaded, explained=explained, since=since)
    if since is not None and made.basis is not None:
        explained = {UUID(placement.id) for placement in made.placements}
    plan_store(made, loaded, now, explained=explained, edited=edited.gpr if edited is not None else None)
    return made, loaded


class _Process:
    # The basis of the stored explanations (those that `explained` names), if this process was the last to store some.
    basis: Basis | None = None
    explained: UUID | None = None


def plan_of(loaded: Loaded, *, explained: Set[UUID] | None, since: Basis | None = None) -> Plan:
    """Plans and stores nothing. `explained`: as for `replan`; `since`: as for `plan`."""
    told = None if explained is None else {str(pk) for pk in explained}
    return plan(loaded.snapshot, explained=told, since=since, restore=loaded.board.restore)


def newcomers_plan(loaded: Loaded, newcomers: Set[UUID]) -> Plan:
    """Does the same as `plan_of`, but tells only of these, if the rest stays as it is stored."""
    return _on_live_board(loaded, plan_newcomers) or plan_of(loaded, explained=newcomers)


def _on_live_board(loaded: Loaded, make: Callable[[Snapshot, Restored], Plan | None]) -> Plan | None:
    with loaded.board.trial(loaded.snapshot) as restored:
        return make(loaded.snapshot, restored) if restored is not None else None


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """It holds ids of other requests: only gpr.queue.explanations may show it."""
    return {
        "reason": explanation.reason.value,
        "blockers": [{name: getattr(blocker, name) for name in BLOCKER_FIELDS} for blocker in explanation.blockers],
        "most_node_count": explanation.most_node_count,
        "most_gpus_per_node": explanation.most_gpus_per_node,
    }


def plan_store(
    made: Plan, loaded: Loaded, now: datetime, *, explained: Set[UUID] | None = None, edited: Gpr | None = None
) -> list[Promise]:
    """Returns the new promises. The caller has held the plan lock since before it loaded."""
    new: list[Promise] = []
    changed: list[PromiseRow] = []
    summaries: dict[UUID, PlanSummary] = {}
    shown = plan_summaries(explained)
    plan_faults_record(made.faults, loaded.requests, now=now)
    if edited is not None:
        forecasts_drop([edited])
    ranges = ranges_of(made.forecasts, now=now)
    for placement in made.placements:
        if placement.id in shown and (summary := summary_of(placement)) != shown[placement.id]:
            summaries[UUID(placement.id)] = summary
    for stand in made.all_placements:
        ask, stored = loaded.requests[stand.id], loaded.promises.get(stand.id)
        if stand.moved is not None:
            _record_move(ask, stand.moved, now)
        if stored is not None:
            updated = _updated_promise(stored, stand)
            changed += [updated] if updated != stored else []
        elif stand.slot is not None and stand.promise_s is not None:
            new.append(_promise(ask.pk, stand.slot, stand.promise_s, ranges.get(stand.id), now))
    # Lock order: GPRs before promises. The version stays: a new plan is no change of the GPR.
    gprs = [_summary_row(pk, summary) for pk, summary in summaries.items()]
    fast_update(Gpr.objects.all(), gprs, PlanSummary._fields, ROWS_AT_ONCE)
    with sent_together():
        forecasts_store(made.forecasts, ranges, now=now)
        rows_insert(new)
        rows_insert(_shadows(made.remembered, now), unique="gpr_id")
        fast_update(Promise.objects.all(), [Promise(**stored._asdict()) for stored in changed], PromiseRow._fields[2:], ROWS_AT_ONCE)
        _record_store(made, loaded, are_stored=bool(summaries))
    if edited is not None:
        Promise.objects.filter(gpr=edited).update(**_range_at(ranges.get(str(edited.pk)), now))
    evictions_store(made.evictions, now=now)
    orders_follow(made, loaded, now=now)
    if summaries or new or changed:
        hint(PLAN, *{slice_topic(loaded.requests[str(pk)].slice_id) for pk in summaries})
    return new


def _record_store(made: Plan, loaded: Loaded, *, are_stored: bool) -> None:
    record, sums = loaded.record, made.remembered
    changes: dict[str, Any] = {"explained": uuid4()} if are_stored else {}
    if sums is not None:
        changes |= {"promised_sum_s": sums.promised_s, "patient_sum_s": sums.patient_s, "summed_at": at(sums.summed_at_s)}
    if record.has_freed:
        changes["has_freed"] = False
    changed = [PlanRecord(pk=record.pk, **changes)] if changes else []
    if record._state.adding:
        rows_insert(changed)
    else:
        rows_update(changed, list(changes))
    if made.basis is not None:
        name = changes.get("explained", record.explained)

        def remember() -> None:
            _Process.basis, _Process.explained = made.basis, name

        transaction.on_commit(remember)


def summary_set(gpr: Gpr, placement: Placement) -> None:
    """Sets the fields of the GPR that tell of its plan; stores nothing."""
    for name, value in summary_of(placement)._asdict().items():
        setattr(gpr, name, value)


def summary_of(placement: Placement) -> PlanSummary:
    start_at = at(placement.start_s) if placement.start_s is not None else None
    explanation = explanation_data(placement.explanation) | {"borrows": placement.borrows}
    return PlanSummary(start_at, explanation, placement.turn_share, placement.turn_key)


def _summary_row(pk: UUID, summary: PlanSummary) -> Gpr:
    # Only the columns to be written: thousands of whole instances with defaults take four times as long.
    values = {"id": pk, **summary._asdict()}
    names = [field.attname for field in Gpr._meta.concrete_fields if field.attname in values]
    return Gpr.from_db(DEFAULT_DB_ALIAS, names, [values[name] for name in names])


def _promise(gpr_id: UUID, slot: Slot, promise_s: int, forecast: Range | None, now: datetime) -> Promise:
    promised_at = at(promise_s)
    return Promise(
        gpr_id=gpr_id,
        made_at=now,
        first_promised_start_at=promised_at,
        promised_start_at=promised_at,
        slot_pool=slot.pool,
        slot_start_at=at(slot.start_s),
        slot_nodes=list(slot.nodes),
        **_range_at(forecast, now),
    )


def _range_at(forecast: Range | None, now: datetime) -> dict[str, datetime | None]:
    # A promise stores a range only if the request waits and the range rests on past promises.
    if forecast is None or not forecast.is_learned:
        return {"p50_at": None, "p90_at": None}
    return {"p50_at": now + timedelta(seconds=forecast.p50_s), "p90_at": now + timedelta(seconds=forecast.p90_s)}


def _updated_promise(stored: PromiseRow, stand: Placement | BarePlacement) -> PromiseRow:
    slot, (cause, cause_id) = stand.slot, stand.lost or ("", "")
    promised_at = stored.promised_start_at if stand.promise_s is None else at(stand.promise_s)
    if slot is None:
        return stored._replace(promised_start_at=promised_at, slot_nodes=[], lost_cause=str(cause), lost_cause_id=cause_id)
    return PromiseRow(stored.gpr_id, stored.made_at, promised_at, slot.pool, at(slot.start_s), list(slot.nodes), str(cause), cause_id)


def _shadows(remembered: Remembered | None, now: datetime) -> list[Shadow]:
    if remembered is None:
        return []
    shadows = {shadow.id: shadow for shadow in remembered.shadows}
    return [_shadow(id_, arrival, shadows.get(id_), now) for id_, arrival in remembered.arrivals]


def shadows_prune(*, now: datetime) -> None:
    observed = timedelta(seconds=SLACK.observed_s)
    # Rows from the future, written before the clock was set back, would never grow old.
    past = Q(made_at__lt=now - observed) | Q(made_at__gt=now + observed)
    Shadow.objects.filter(past).exclude(Q(strict_ends_at__gt=now) | Q(patient_ends_at__gt=now)).delete()


def boxes_ended(gprs: Sequence[Gpr], *, now: datetime) -> None:
    """Store how much of their booked time boxes used, once their nodes are back. The caller holds the plan lock."""
    # Clocks may be set back. A GPR without `provisioning_at` never started.
    ran_s = {gpr: max((now - gpr.provisioning_at).total_seconds(), 0.0) for gpr in gprs if gpr.provisioning_at is not None}
    record = next(iter(PLAN_RECORD()), PlanRecord())
    for gpr, box_s in ran_s.items():
        record.ran_sum_s = record.ran_sum_s * ENDS_FADING + box_s
        record.booked_sum_s = record.booked_sum_s * ENDS_FADING + box_s + gpr.remaining_s
        record.has_freed |= gpr.remaining_s > 0
    record.save()
    usage_add(ran_s, now=now)
    _shadows_shorten(ran_s)


def shadows_drop(gprs: Sequence[Gpr]) -> None:
    """Deletes the shadows of GPRs that never ran."""
    rows = Shadow.objects.filter(gpr__in=gprs, patient_starts_at__isnull=False, strict_starts_at__isnull=False)
    rows.update(patient_ends_at=F("patient_starts_at"), strict_ends_at=F("strict_starts_at"))


_ENDS: Final = ("patient_ends_at", "strict_ends_at")
_SHADOWS: Final = WrittenQuery(Shadow.objects.filter(**{f"{name}__isnull": False for name in _ENDS}), key="gpr__id")


def _shadows_shorten(ran_s: Mapping[Gpr, float]) -> None:
    """Shorten the shadows of boxes that used less than they booked."""
    ran = {gpr.pk: timedelta(seconds=box_s) for gpr, box_s in ran_s.items()}
    rows = _SHADOWS(ran)
    for row in rows:
        for queue in ("patient", "strict"):
            over_at = getattr(row, f"{queue}_starts_at") + ran[row.gpr_id]
            setattr(row, f"{queue}_ends_at", min(getattr(row, f"{queue}_ends_at"), over_at))
    fast_update(Shadow.objects.all(), rows, _ENDS, None)


def _shadow(id_: str, arrival: Arrival, shadow: PlannerShadow | None, now: datetime) -> Shadow:
    row = Shadow(gpr_id=UUID(id_), made_at=now, priority=arrival.priority, gpu_s=arrival.gpu_s, gpus_per_node=0)
    if shadow is not None:
        row.gpus_per_node = shadow.gpus_per_node
        row.patient = {"pool": shadow.patient.pool, "nodes": shadow.patient.nodes}
        row.patient_starts_at, row.patient_ends_at = at(shadow.patient.start_s), at(shadow.patient_end_s)
        row.strict = {"pool": shadow.strict.pool, "nodes": shadow.strict.nodes}
        row.strict_starts_at, row.strict_ends_at = at(shadow.strict.start_s), at(shadow.strict_end_s)
    return row


def _record_move(ask: GprRow, move: PlannedMove, now: datetime) -> None:
    PromiseMove.objects.create(
        gpr_id=ask.pk,
        at=now,
        old_start_at=at(move.old_s),
        new_start_at=at(move.new_s),
        cause=move.cause.value,
        cause_id=move.cause_id,
    )
    text = f"The promised start moved from {utc(at(move.old_s))} to {utc(at(move.new_s))}."
    gpr_event_record("promise.moved", ask, text, now, severity=Severity.WARNING, reason=move.cause.value)

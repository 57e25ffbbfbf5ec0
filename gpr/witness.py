"""The stored plan that promises rest on: plan anew, store slots, promises, their moves, and what every queued GPR waits for.

Whoever writes slots holds the one Witness row: two who planned at once would promise the same GPUs twice.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction

from egs.words import utc
from gpr.models import Gpr, Promise, PromiseMove, Witness
from gpr.planner.engine import plan
from gpr.planner.plan import Explanation, Placement, Plan
from gpr.planner.plan import PromiseMove as Move
from gpr.planner.snapshot import Slot
from gpr.snapshot import Loaded, at, snapshot_load
from journal.hints import PLAN, hint, slice_topic
from journal.models import Severity
from journal.services import event_record


def witness_lock() -> None:
    """Hold the right to write slots until the transaction ends."""
    Witness.objects.select_for_update().get_or_create(singleton=True)


@transaction.atomic
def replan(*, now: datetime) -> tuple[Plan, Loaded]:
    """Plan the whole queue and store the plan; starts nothing.

    Every slot may move up: nobody keeps account of what became free, and a newcomer must not take a hole before those ahead of it.
    """
    witness_lock()
    loaded = snapshot_load(now=now)
    made = plan(loaded.snapshot)
    _store(made, loaded, now)
    return made, loaded


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """As stored. Ids of others stand in it: show it through gpr.explaining only."""
    return {
        "reason": explanation.reason.value,
        "blockers": [asdict(blocker) for blocker in explanation.blockers],
        "ahead_count": explanation.ahead_count,
        "most_node_count": explanation.most_node_count,
        "most_gpus_per_node": explanation.most_gpus_per_node,
    }


def _store(made: Plan, loaded: Loaded, now: datetime) -> None:
    new: list[Promise] = []
    changed: list[Promise] = []
    told: list[Gpr] = []
    for placement in made.placements:
        gpr = loaded.gprs[placement.id]
        if _tell(gpr, placement):
            told.append(gpr)
        if placement.moved is not None:
            _record_move(gpr, placement.moved, now)
        promise = loaded.promises.get(placement.id)
        if promise is None and placement.slot is not None and placement.promise_s is not None:
            new.append(_promise(gpr, placement.slot, placement.promise_s, now))
        elif promise is not None and _follow(promise, placement):
            changed.append(promise)
    # GPRs before promises, as everywhere. Not the version: a new plan is not a change of the GPR.
    Gpr.objects.bulk_update(told, ["planned_start_at", "explanation"], batch_size=500)
    Promise.objects.bulk_create(new)
    Promise.objects.bulk_update(changed, ["promised_start_at", "slot_pool", "slot_start_at", "slot_nodes"], batch_size=500)
    if told or new or changed:
        hint(PLAN)
    for slice_id in {gpr.slice_id for gpr in told}:
        hint(slice_topic(slice_id))


def _tell(gpr: Gpr, placement: Placement) -> bool:
    """Set what pages show; False when it is so already."""
    start_at = at(placement.slot.start_s) if placement.slot else None
    explanation = explanation_data(placement.explanation)
    if (gpr.planned_start_at, gpr.explanation) == (start_at, explanation):
        return False
    gpr.planned_start_at, gpr.explanation = start_at, explanation
    return True


def _promise(gpr: Gpr, slot: Slot, promise_s: int, now: datetime) -> Promise:
    promised_at = at(promise_s)
    return Promise(
        gpr=gpr,
        made_at=now,
        first_promised_start_at=promised_at,
        promised_start_at=promised_at,
        slot_pool=slot.pool,
        slot_start_at=at(slot.start_s),
        slot_nodes=list(slot.nodes),
    )


def _follow(promise: Promise, placement: Placement) -> bool:
    before = (promise.promised_start_at, promise.slot_pool, promise.slot_start_at, promise.slot_nodes)
    if placement.slot is None:
        promise.slot_nodes = []
    else:
        promise.slot_pool, promise.slot_nodes = placement.slot.pool, list(placement.slot.nodes)
        promise.slot_start_at = at(placement.slot.start_s)
    if placement.promise_s is not None:
        promise.promised_start_at = at(placement.promise_s)
    return before != (promise.promised_start_at, promise.slot_pool, promise.slot_start_at, promise.slot_nodes)


def _record_move(gpr: Gpr, move: Move, now: datetime) -> None:
    PromiseMove.objects.create(
        gpr=gpr,
        at=now,
        old_start_at=at(move.old_s),
        new_start_at=at(move.new_s),
        cause=move.cause.value,
        cause_id=move.cause_id,
    )
    event_record(
        kind="promise.moved",
        message=f"The promised start moved from {utc(at(move.old_s))} to {utc(at(move.new_s))}.",
        at=now,
        severity=Severity.WARNING,
        reason=move.cause.value,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
    )

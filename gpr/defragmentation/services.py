"""Carries out a defragmentation proposal."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django.db import transaction

from accounts.models import User
from core.errors import IllegalTransition, StaleState
from core.words import plural, utc
from gpr.allocation.live import snapshot_load
from gpr.allocation.snapshot import at
from gpr.allocation.stored_plan import plan_lock, plan_store
from gpr.defragmentation.selectors import fingerprint_of
from gpr.models import Eviction, Gpr, GprState
from journal.hints import TICK, hint
from journal.services import event_record
from planner.engine import plan
from planner.sharing.defragment import Proposal, proposals, with_proposal


@transaction.atomic
def gpr_make_room(*, gpr: Gpr, fingerprint: str, actor: User, why: str, now: datetime) -> Eviction:
    """Give notice to boxes and promise their nodes to this GPR, if that would still be proposed.

    Raises IllegalTransition when the GPR is not queued, StaleState when there is no such proposal.
    """
    plan_lock()
    gpr.refresh_from_db(fields=["state"])
    if gpr.state != GprState.QUEUED:
        raise IllegalTransition(f"Only a GPR in the queue needs room; this one is {gpr.get_state_display().lower()}.", state=gpr.state)
    loaded = snapshot_load(now=now)
    proposal = _same(proposals(loaded.snapshot, only=str(gpr.pk)), fingerprint)
    made = plan(with_proposal(loaded.snapshot, proposal))
    plan_store(replace(made, evictions=(proposal.eviction, *made.evictions)), loaded, now)
    _record(proposal, gpr, actor, why, now)
    hint(TICK)
    return Eviction.objects.filter(gpr=gpr).latest("made_at")


def _same(found: tuple[Proposal, ...], fingerprint: str) -> Proposal:
    """Raises StaleState."""
    for proposal in found:
        if fingerprint_of(proposal) == fingerprint:
            return proposal
    raise StaleState(
        "The queue has changed since this was proposed: these moves would not do the same any more. Look at the proposals again."
    )


def _record(proposal: Proposal, gpr: Gpr, actor: User, why: str, now: datetime) -> None:
    # For administrators only, since it names several workspaces. Their members get Events of their own.
    count = len(proposal.relocations)
    event_record(
        kind="queue.defragmented",
        message=f"{plural(count, 'running GPR')} {'has' if count == 1 else 'have'} notice to move, so that {gpr.name} can start at "
        f"{utc(at(proposal.start_s))} instead of {utc(at(proposal.instead_s))}. {why}",
        at=now,
        actor=actor,
        data={"gpr": proposal.id, "moved": [move.id for move in proposal.relocations], "why": why},
    )

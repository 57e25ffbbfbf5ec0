"""I3: a slice has one provisioned GPR. I6: only legal moves, in the code's table and in the database's own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.db import connection, transaction

from core.errors import Conflict, IllegalTransition, StaleState
from gpr.lifecycle import gpr_transition
from gpr.models import ENDED, PROVISIONED, TRANSITIONS, Gpr, GprState
from journal.models import Event
from tests.builders import HOUR, NOW, make_cluster, make_gpr, make_slice
from tests.promises.database.books import is_refused, raw, undone

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

S = GprState
FIRST = {S.PENDING_APPROVAL, S.QUEUED}
LEGAL = {(old, new) for old, news in TRANSITIONS.items() for new in news}
# To each state from the first that leads there.
WAYS: dict[GprState, list[GprState]] = {
    S.PENDING_APPROVAL: [],
    S.QUEUED: [],
    S.PROVISIONING: [S.PROVISIONING],
    S.ACTIVE: [S.PROVISIONING, S.ACTIVE],
    S.EXITING: [S.PROVISIONING, S.EXITING],
    S.COMPLETED: [S.PROVISIONING, S.EXITING, S.COMPLETED],
    S.RELEASED: [S.PROVISIONING, S.EXITING, S.RELEASED],
    S.EVICTED: [S.PROVISIONING, S.EXITING, S.EVICTED],
    S.FAILED: [S.PROVISIONING, S.EXITING, S.FAILED],
    S.CANCELED: [S.CANCELED],
    S.REJECTED: [S.REJECTED],
}


def gpr_in(state: GprState, slice_: object = None) -> Gpr:
    """Brought there by bare UPDATEs; it has a window, so that nothing but the move itself can be refused."""
    first = state if state in FIRST else S.QUEUED
    gpr = make_gpr(slice_ or make_slice(), state=first, active_at=NOW, ends_at=NOW + HOUR)  # type: ignore[arg-type]
    for step in WAYS[state]:
        set_state(gpr, step)
    gpr.refresh_from_db()
    return gpr


def set_state(gpr: Gpr, state: str) -> None:
    key = gpr.pk.hex if connection.vendor == "sqlite" else gpr.pk
    assert raw("UPDATE gpr_gpr SET state = %s WHERE id = %s", state, key) == 1


def test_the_table_names_every_state_and_ended_ones_lead_nowhere() -> None:
    assert set(TRANSITIONS) | ENDED == set(S)
    assert not set(TRANSITIONS) & ENDED
    assert {new for _, new in LEGAL} <= set(S)
    assert all(state in {new for _, new in LEGAL} | FIRST for state in S), "a state that nothing reaches"


def test_the_databases_table_is_the_codes_table() -> None:
    assert set(import_module("gpr.migrations.0003_promises").MOVES) == LEGAL


@pytest.mark.parametrize("old", S)
def test_the_database_refuses_every_move_that_is_not_in_the_table(old: GprState) -> None:
    gpr = gpr_in(old)
    refused = set()
    for new in S:
        with undone():
            if is_refused(lambda new=new: set_state(gpr, new)):
                refused.add(new)

    assert refused == {new for new in S if old != new and (old, new) not in LEGAL}


@pytest.mark.parametrize("old", S)
def test_a_transition_makes_every_move_of_the_table_with_one_event_and_no_other(old: GprState) -> None:
    pk = gpr_in(old).pk
    for new in S:
        with undone():
            _move(Gpr.objects.get(pk=pk), new)


def _move(gpr: Gpr, new: GprState) -> None:
    old, version = GprState(gpr.state), gpr.version
    told = Event.objects.filter(gpr_id=gpr.pk, kind="gpr.transition")

    if (old, new) in LEGAL:
        gpr_transition(gpr=gpr, to=new, now=NOW, message="Moved.", reason="because")
        event = told.get()
        assert (event.old, event.new, event.reason, event.slice_id) == (old, new, "because", gpr.slice_id)
    else:
        with pytest.raises(IllegalTransition), transaction.atomic():
            gpr_transition(gpr=gpr, to=new, now=NOW, message="Moved.")
        assert not told.exists()

    stored = Gpr.objects.get(pk=gpr.pk)
    moved = (old, new) in LEGAL
    assert (stored.state, stored.version) == ((new, version + 1) if moved else (old, version))
    assert (stored.ended_at == NOW) == (moved and new in ENDED)
    assert (gpr.state, gpr.version) == (stored.state, stored.version)


@pytest.mark.parametrize("state", S)
def test_a_gpr_is_born_waiting(state: GprState) -> None:
    slice_ = make_slice()

    refused = is_refused(lambda: make_gpr(slice_, state=state, active_at=NOW, ends_at=NOW + HOUR))

    assert refused == (state not in FIRST)


def test_a_state_that_nobody_knows_is_refused() -> None:
    gpr = gpr_in(S.QUEUED)

    assert is_refused(lambda: set_state(gpr, "LIMBO"))


def test_an_active_gpr_must_have_a_window() -> None:
    gpr = gpr_in(S.PROVISIONING)
    Gpr.objects.filter(pk=gpr.pk).update(ends_at=None)

    assert is_refused(lambda: set_state(gpr, S.ACTIVE))


@pytest.mark.parametrize("fields", [{"nodes": 0}, {"duration_s": 0}, {"priority": 0}, {"priority": 301}])
def test_a_gpr_that_asks_for_nonsense_is_refused(fields: dict[str, Any]) -> None:
    slice_ = make_slice()

    assert is_refused(lambda: make_gpr(slice_, **fields))


@pytest.mark.parametrize("moved", [{"state": S.CANCELED}, {"version": 7}], ids=["moved", "edited"])
def test_who_read_it_before_it_was_moved_or_edited_cannot_move_it(moved: dict[str, object]) -> None:
    gpr = gpr_in(S.QUEUED)
    Gpr.objects.filter(pk=gpr.pk).update(**moved)

    with pytest.raises(StaleState), transaction.atomic():
        gpr_transition(gpr=gpr, to=S.PROVISIONING, now=NOW, message="Started.")

    assert not Event.objects.filter(gpr_id=gpr.pk).exists()
    assert gpr.state == S.QUEUED


@pytest.mark.parametrize("state", sorted(PROVISIONED))
def test_a_slice_cannot_have_a_second_provisioned_gpr(state: GprState) -> None:
    slice_ = make_slice(make_cluster())
    gpr_in(state, slice_)
    second = gpr_in(S.QUEUED, slice_)

    assert is_refused(lambda: set_state(second, S.PROVISIONING))
    with pytest.raises(Conflict), transaction.atomic():
        gpr_transition(gpr=second, to=S.PROVISIONING, now=NOW, message="Started.")

    assert not Event.objects.filter(gpr_id=second.pk).exists()
    assert Gpr.objects.get(pk=second.pk).state == S.QUEUED


@pytest.mark.parametrize("state", sorted(set(S) - PROVISIONED))
def test_a_gpr_that_holds_nothing_is_in_no_others_way(state: GprState) -> None:
    slice_ = make_slice(make_cluster())
    gpr_in(state, slice_)
    second = gpr_in(S.QUEUED, slice_)

    gpr_transition(gpr=second, to=S.PROVISIONING, now=NOW, message="Started.")

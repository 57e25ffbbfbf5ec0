"""The agent reports each foreign change of EGS's objects once, and never floods the hub."""

from __future__ import annotations

from typing import Any

from protocol.nodes.drift import DRIFT_AGAIN_S, DRIFTS_MAX, Drift
from worker_agent.hub.drift import ADDED_AGAIN_S, DriftReport

MENDED = Drift(what="node a", detail="The taint was gone.", node="a", is_repaired=True)
LEFT = Drift(what="node b", detail="The taint was gone.", node="b")


def told(book: DriftReport) -> tuple[Drift, ...]:
    drifts = book.untold
    book.take(drifts)
    return drifts


def test_what_was_mended_is_told_once_and_again_only_after_a_while() -> None:
    book = DriftReport()
    book.see("nodes", [MENDED], 0.0)
    assert told(book) == (MENDED,)

    book.see("nodes", [MENDED], 1.0)
    assert told(book) == ()

    book.see("nodes", [MENDED], DRIFT_AGAIN_S + 1.0)
    assert told(book) == (MENDED,)


def test_what_is_left_as_it_is_is_told_once_however_long_it_stays() -> None:
    book = DriftReport()
    for second in range(300):
        book.see("nodes", [LEFT], float(second))

    assert told(book) == (LEFT,)


def test_what_was_put_right_and_changed_anew_is_told_anew() -> None:
    book = DriftReport()
    book.see("nodes", [LEFT], 0.0)
    book.see("nodes", [], 1.0)
    assert told(book) == (LEFT,)

    for second in range(2, 100):
        book.see("nodes", [LEFT], float(second))

    assert told(book) == (LEFT,)


def test_what_one_looks_at_says_nothing_of_what_another_found() -> None:
    book = DriftReport()
    book.see("nodes", [LEFT], 0.0)
    book.see("install", [], 1.0)
    told(book)

    book.see("nodes", [LEFT], DRIFT_AGAIN_S + 2.0)

    assert told(book) == ()


def test_what_the_hub_has_not_heard_stays_untold_and_one_message_holds_so_many() -> None:
    book = DriftReport()
    book.see("nodes", [Drift(what=f"node {n:03}", detail="x") for n in range(DRIFTS_MAX + 5)], 0.0)

    first = book.untold
    assert len(first) == DRIFTS_MAX
    assert book.untold == first
    book.take(first)
    assert len(book.untold) == 5


def test_another_change_that_comes_too_soon_is_told_when_the_minute_is_over() -> None:
    book = DriftReport()
    book.see("nodes", [MENDED], 0.0)
    assert told(book) == (MENDED,)
    worse = Drift(what="node a", detail="The taint was another's.", node="a", is_repaired=True)

    book.see("nodes", [worse], 5.0)
    assert told(book) == ()
    book.see("nodes", [], DRIFT_AGAIN_S)

    assert told(book) == (worse,)


def test_what_operators_add_all_the_time_is_told_once_an_hour_at_most() -> None:
    book = DriftReport()
    tellings: list[Any] = []
    for minute in range(121):
        book.see("install", [Drift(what="role bindings in namespace red", detail=f"{minute} of them.", is_added=True)], minute * 60.0)
        tellings += told(book)

    assert [drift.detail for drift in tellings] == ["0 of them.", "60 of them.", "120 of them."]
    assert ADDED_AGAIN_S == 3600.0


def test_what_was_added_and_opens_the_fence_is_no_such_thing() -> None:
    book = DriftReport()
    book.see("install", [Drift(what="network policies", detail="a", is_added=True, is_foreign=True)], 0.0)
    told(book)
    worse = Drift(what="network policies", detail="a, b", is_added=True, is_foreign=True)

    book.see("install", [worse], DRIFT_AGAIN_S + 1.0)

    assert told(book) == (worse,)

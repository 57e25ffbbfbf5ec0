"""A request that starts after another one. The worlds of tests/planner/promises/test_promises.py have chains of them, too."""

from __future__ import annotations

from dataclasses import replace

from planner.causes import Cause
from planner.engine import plan
from planner.explain import sentence
from planner.plan import Blocker, Explanation, PromiseMove, Reason
from planner.snapshot import PlanPolicy, Request, Snapshot
from tests.planner.build import EITHER, GUARDED, moves, placements, pool, request, running, settled, slots, stand, starts


def after(before: str, made: Request) -> Request:
    return replace(made, after=before)


@EITHER
def test_a_chain_that_is_filed_at_once_has_a_place_one_behind_the_other_in_whatever_order_it_stands(policy: PlanPolicy) -> None:
    chain = (after("b", request("c", priority=201)), after("a", request("b")), request("a", length=50, priority=50))
    made = plan(Snapshot(0, (pool(3),), queue=chain, policy=policy))

    assert starts(made) == slots(made) == {"a": 0, "b": 50, "c": 150}
    assert placements(made)["b"].explanation == Explanation(Reason.WAITS_FOR_PREDECESSOR, (Blocker("a", False, 50, False, 1, 0),), 0)


def test_the_promise_rests_on_that_of_the_first_and_the_start_comes_as_soon_as_it_has_ended() -> None:
    """The first may start at 40, when the box ends, though it is promised 70."""
    first = request("a", length=30, promise=70, slot=stand(70, "p0"))
    snapshot = Snapshot(0, (pool(2),), (running("r", "p0", "p1", end=40),), (first, after("a", request("b"))))

    made = plan(snapshot)

    assert (starts(made), slots(made)) == ({"a": 40, "b": 70}, {"a": 70, "b": 100})
    assert placements(made)["b"].promise_s == 100


def test_a_box_that_ends_later_moves_who_starts_after_it_and_nobody_else() -> None:
    follower, other = after("a", request("b", pools=("q",))), request("c", pools=("q",), length=300)
    stands = Snapshot(0, (pool(1), pool(1, id="q")), (running("a", "p0", end=40),), (follower, other))
    before = settled(replace(stands, queue=(follower,)))
    before = settled(replace(before, queue=(*before.queue, other)))

    later = replace(before, running=(replace(before.running[0], end_s=90),))
    overdue = replace(before, now_s=40, policy=replace(GUARDED, overrun_grace_s=60))

    assert slots(plan(before)) == {"b": 40, "c": 140}
    assert moves(later) == {"b": PromiseMove(40, 440, Cause.PREDECESSOR, "a")}  # c keeps its slot, which was next
    assert moves(overdue) == {"b": PromiseMove(40, 440, Cause.OVERRUN, "a")}


def test_who_starts_after_one_without_a_place_has_none_until_that_one_has() -> None:
    snapshot = Snapshot(0, (pool(1),), queue=(after("unapproved", request("b")),))

    (lost,) = plan(snapshot).placements
    found = placements(plan(replace(snapshot, queue=(*snapshot.queue, request("unapproved")))))["b"]

    assert (lost.slot, lost.promise_s, lost.explanation.reason) == (None, None, Reason.PREDECESSOR_HAS_NO_PLACE)
    assert (found.promise_s, found.start_s) == (100, 100)


def test_the_sentence_names_the_first_only_to_who_may_see_it() -> None:
    waits = Explanation(Reason.WAITS_FOR_PREDECESSOR, (Blocker("a", True, 3600),))
    lost = Explanation(Reason.PREDECESSOR_HAS_NO_PLACE, (Blocker("a", False, 0),))

    def told(explanation: Explanation, name: str | None) -> str:
        return sentence(explanation, now_s=0, name_of=lambda _: name, say_at=lambda at_s: f"<{at_s}>")

    assert told(waits, "prep") == "It starts after prep, which ends in 1 h, at <3600>."
    assert told(replace(waits, blockers=(Blocker("a", True, 0, is_overdue=True),)), "prep").endswith("its nodes are not back yet.")
    assert told(waits, None) == "It starts after another workspace's request, which has to end first."
    assert told(lost, "prep") == "It starts after prep, which has no place in the plan yet, and nothing is promised to it."
    assert "prep" not in told(lost, None)

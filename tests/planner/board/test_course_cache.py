"""The course that is kept of a board tells each newcomer what playing the whole queue would."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.board.board import Board
from planner.board.course_cache import CourseCache
from planner.board.waiting import Waiting
from planner.engine import admit, place_newcomers
from planner.promises.repair import board_of
from planner.promises.slack import SlackTracker
from planner.snapshot import Request, Snapshot
from tests.effort import examples
from tests.planner.board.test_sharing import LONG, SHORT, crowd


@examples(3_000, quick_count=60)
@given(st.integers(0, 10**6))
def test_a_newcomer_starts_when_it_would_if_all_were_played_whoever_was_tried_or_came_before(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = _without_preferences(crowd(seed, sizes=(10, SHORT, SHORT, LONG)), dice)
    board, newcomers = board_of(snapshot)
    place_newcomers(board, newcomers, snapshot)
    come, courses = _newcomers(snapshot, dice), CourseCache()
    for request in come:
        if (newcomer := _placed(board, request, snapshot)) is None:
            continue
        told = courses.expected_near(board, [newcomer], is_trial=dice.random() < 0.6)

        assert told == CourseCache().expected_near(board, [newcomer])
        assert told[0].items() <= board.expected({request.id}).items()

        added = [newcomer]
        if (stays := dice.random()) < 0.4:
            board.dequeue(newcomer)
            added = []
        if stays < 0.2:
            added += filter(None, (_placed(board, other, snapshot) for other in (next(come, None), next(come, None)) if other))
        if added:
            courses = courses.with_slots(board, added)
        starts_s = [slot.start_s for slot in board.expected().values()]
        if dice.random() < 0.3 and min(starts_s, default=0) > board.now_s + 1:
            board.advance(dice.randrange(board.now_s + 1, min(starts_s)))


def _without_preferences(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Mostly: a board with preferences is played whole."""
    if dice.random() < 0.1:
        return snapshot
    return replace(snapshot, queue=tuple(replace(each, handicaps=()) for each in snapshot.queue))


def _newcomers(snapshot: Snapshot, dice: random.Random) -> Iterator[Request]:
    """The like of those that wait, mostly of the same kinds."""
    for number in range(12):
        like = dice.choice(snapshot.queue)
        pools = like.pools if dice.random() < 0.8 else like.pools[:1]
        yield replace(like, id=f"n{number}", rank=1000 + number, length_s=dice.randint(1, 20), pools=pools, promise_s=None, slot=None)


def _placed(board: Board, request: Request, snapshot: Snapshot) -> Waiting | None:
    waiting = board.enqueue(request)
    admit(board, SlackTracker(board, snapshot.memory), waiting)
    if board.has_slot(waiting):
        return waiting
    board.dequeue(waiting)
    return None

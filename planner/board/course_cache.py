"""Keeps the expected course of a board's queue, as far as it was played, so that each newcomer need not play all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from planner.board.board import Board
from planner.board.course import NO_COURSE, Course, first_moments, follow, joined, new_course
from planner.board.demands import Group
from planner.board.table import HAS_SLOT, NO_SLOT, STARTED, Table, put_slot
from planner.board.waiting import Turn, Waiting
from planner.capacity.placement import Capacity
from planner.capacity.profile import NEVER_S, NONE, Ints, forget_all_before
from planner.snapshot import Slot

# A course has at most so many numbers (8 MB); what comes later is played each time.
NUMBERS_MOST: Final = 1 << 20
GROUPS_MOST: Final = 100


class _KnownCourse(NamedTuple):
    course: Course = NO_COURSE
    groups: tuple[Group, ...] = ()
    made_s: int = 0
    until_s: int = 0

    def at(self, now_s: int) -> _KnownCourse:
        """Returns what is still known at that time: nothing, once a request of the course should have started."""
        course, count = self.course, self.course.fill[0]
        starts_s: Ints = course.at_s[:count][course.row[:count] != NONE]
        is_over = now_s < self.made_s or (now_s > self.made_s and len(starts_s) > 0 and int(starts_s[0]) <= now_s)
        return _KnownCourse() if is_over else self


class _Tried(NamedTuple):
    """It holds a newcomer, its slot, and what is known of the board with it."""

    id: str
    turn: Turn
    row: int
    slot: Slot
    known: _KnownCourse

    def is_for(self, waiting: Waiting, slot: Slot | None) -> bool:
        return (self.id, self.turn, self.slot) == (waiting.request.id, waiting.turn, slot)


class CourseCache:
    """Boards that hold the same boxes and slots share it."""

    def __init__(self, known: _KnownCourse | None = None) -> None:
        self._known = known or _KnownCourse()
        self._tried: _Tried | None = None

    def expected_near(
        self, board: Board, newcomers: Sequence[Waiting], *, is_trial: bool = False
    ) -> tuple[dict[str, Slot], dict[str, int]]:
        """Simulates the queue with newcomers whose slots stand beside all others, and returns `Board.starts_near` of that.

        `is_trial` says that more newcomers will be tried on the same board.
        """
        if len(newcomers) == 1 and board.has_slot(newcomers[0]) and board.newcomers_change_nothing():
            table = self._played_beside(board, newcomers[0], is_trial=is_trial)
        else:
            table = board.played({each.request.id for each in newcomers})
        return board.starts_near(newcomers, table)

    def _played_beside(self, board: Board, newcomer: Waiting, *, is_trial: bool) -> Table:
        """Plays the queue until the newcomer starts."""
        known, slot = self._known.at(board.now_s), board.slot_at(board.nodes_of(newcomer), board.start_s(newcomer))
        if is_trial and (known.until_s <= slot.start_s or board.group_of(newcomer) not in known.groups):
            known = self._known = self._extended(known, board, newcomer)
        capacity, table, moment, at_s = _followed(known, board, newcomer, (newcomer,))
        put_slot(capacity, table, newcomer.row, 1)
        with_it = _played_on(known, moment, board, (capacity, table), (at_s, NEVER_S), newcomer)
        self._tried = _Tried(newcomer.request.id, newcomer.turn, newcomer.row, slot, with_it)
        return table

    def with_slots(self, board: Board, added: Sequence[Waiting]) -> CourseCache:
        """Returns the courses of the board once these have their slots for good."""
        tried, known = self._tried, self._known.at(board.now_s)
        if tried is not None and len(added) == 1 and tried.is_for(added[0], board.slot(added[0])):
            course = tried.known.course
            course.row[course.row == tried.row] = added[0].row
            return CourseCache(tried.known)
        for i, waiting in enumerate(added if known.course.fill[0] else ()):
            _, _, moment, at_s = _followed(known, board, waiting, added[i:])
            known = known._replace(course=first_moments(known.course, moment), until_s=at_s)
        return CourseCache(known)

    def _extended(self, known: _KnownCourse, board: Board, newcomer: Waiting) -> _KnownCourse:
        """Plays the board without the newcomer until the start of the newcomer's slot."""
        if board.group_of(newcomer) not in known.groups:
            board.know_groups(known.groups[-GROUPS_MOST:])
            known = _KnownCourse()
        capacity, table, moment, at_s = _followed(known, board, None, (newcomer,))
        table.state[newcomer.row] = NO_SLOT
        return _played_on(known, moment, board, (capacity, table), (at_s, board.start_s(newcomer) + 1), None)


def _followed(known: _KnownCourse, board: Board, newcomer: Waiting | None, absent: Sequence[Waiting]) -> tuple[Capacity, Table, int, int]:
    """Follows the course until the newcomer may matter, without the slots of the absent ones.

    Returns the capacity and the table of that time, the moment of the course, and the time."""
    capacity, table = board.playable_copy()
    for waiting in absent:
        put_slot(capacity, table, waiting.row, -1)
    if newcomer is None:
        return capacity, table, *follow(capacity, table, known.course, NONE, NONE, board.places_in_turn(), board.now_s)
    group = known.groups.index(asked) if (asked := board.group_of(newcomer)) in known.groups else NONE
    return capacity, table, *follow(capacity, table, known.course, newcomer.row, group, board.places_in_turn(), board.now_s)


def _played_on(
    known: _KnownCourse, moment: int, board: Board, world: tuple[Capacity, Table], times_s: tuple[int, int], newcomer: Waiting | None
) -> _KnownCourse:
    """Plays on from a moment until the newcomer starts, or to the end of the times."""
    capacity, table = world
    forget_all_before(capacity.nodes, times_s[0])
    forget_all_before(capacity.limits, times_s[0])
    table.state[(table.state == HAS_SLOT) & (table.slot_s < times_s[0])] = STARTED
    groups, free_now = board.groups, board.empty_free_now()
    most = min(4 * len(board.order) + 64, NUMBERS_MOST // max(free_now.enough_until_s.size, 1)) - moment
    course = new_course(free_now, max(most, 0), len(table.places))
    board.play(capacity, table, times_s, None if newcomer is None else {newcomer.request.id}, course)
    until_s = NEVER_S if course.fill[1] else times_s[1] if newcomer is None else int(table.slot_s[newcomer.row])
    alike = [(number, groups.index(group)) for number, group in enumerate(known.groups) if group in groups]
    return _KnownCourse(joined(first_moments(known.course, moment), course, alike), groups, board.now_s, until_s)

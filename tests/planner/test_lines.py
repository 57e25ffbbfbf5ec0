"""Step functions against brute force: a list with what is free in each second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.capacity.profile import (
    AFTER,
    AT_S,
    FOREVER_S,
    FREE,
    NEVER_S,
    NONE,
    Lines,
    change,
    copy_lines,
    first_fit,
    forget_before,
    free_since,
    free_until,
    last_fit,
    least_free,
    new_lines,
    next_step_s,
    rises,
    with_lines,
    with_spare,
)
from tests.effort import examples

ROOM = 4
# All boxes are over by then.
END_S = 60
MANY = examples(300)


@dataclass(frozen=True)
class Box:
    line: int
    start_s: int
    length_s: int
    by: int

    @property
    def end_s(self) -> int:
        return self.start_s + self.length_s


BOXES = st.lists(
    st.builds(Box, st.integers(0, 1), st.integers(0, 30), st.integers(0, 12), st.sampled_from([-1, -2, -4, 1])),
    max_size=7,
)
SECONDS = st.integers(0, 45)


def lines_of(boxes: list[Box]) -> Lines:
    lines = new_lines(np.full(2, ROOM, np.int64), since_s=0, spare=2 * len(boxes))
    for box in boxes:
        change(lines, box.line, box.start_s, box.end_s, box.by)
    return lines


def free_of(boxes: list[Box], line: int = 0) -> list[int]:
    return [ROOM + sum(box.by for box in boxes if box.line == line and box.start_s <= at < box.end_s) for at in range(END_S)]


def steps_of(lines: Lines, line: int) -> list[tuple[int, int]]:
    steps, step = [], int(lines.head[line])
    while step != NONE:
        steps.append((int(lines.steps[step, AT_S]), int(lines.steps[step, FREE])))
        step = int(lines.steps[step, AFTER])
    return steps


def unused_count(lines: Lines) -> int:
    count, step = 0, int(lines.unused[0])
    while step != NONE:
        count, step = count + 1, int(lines.steps[step, AFTER])
    return count


def fits(free: list[int], need: int, start_s: int, length_s: int) -> bool:
    """Behind the end of the list it stays as it was in the end."""
    return all(free[min(at, END_S - 1)] >= need for at in range(start_s, start_s + length_s))


@MANY
@given(BOXES)
def test_a_line_is_the_sum_of_its_boxes_with_no_step_that_is_none(boxes: list[Box]) -> None:
    lines = lines_of(boxes)

    for line in (0, 1):
        free = free_of(boxes, line)
        assert steps_of(lines, line) == [(at, free[at]) for at in range(END_S) if at == 0 or free[at] != free[at - 1]]


@MANY
@given(BOXES)
def test_no_step_is_ever_lost(boxes: list[Box]) -> None:
    lines = lines_of(boxes)

    in_use = len(steps_of(lines, 0)) + len(steps_of(lines, 1))
    assert unused_count(lines) == lines.unused[1] == len(lines.steps) - in_use


@MANY
@given(BOXES, st.permutations(range(7)))
def test_what_is_taken_and_given_back_in_any_order_leaves_no_trace(boxes: list[Box], order: list[int]) -> None:
    lines = lines_of(boxes)
    for box in (boxes[i] for i in order if i < len(boxes)):
        change(lines, box.line, box.start_s, box.end_s, -box.by)

    assert [steps_of(lines, line) for line in (0, 1)] == [[(0, ROOM)], [(0, ROOM)]]
    assert lines.unused[1] == 2 * len(boxes)


@MANY
@given(BOXES, SECONDS, st.integers(1, 15))
def test_least_free_is_the_least_of_all_seconds(boxes: list[Box], start_s: int, length_s: int) -> None:
    assert least_free(lines_of(boxes), 0, start_s, start_s + length_s) == min(free_of(boxes)[start_s : start_s + length_s])


@MANY
@given(BOXES, st.integers(1, ROOM), st.integers(1, 15), SECONDS, st.integers(0, 50))
def test_first_fit_is_the_first_second_that_has_room(boxes: list[Box], need: int, length_s: int, since_s: int, before_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(since_s, before_s) if fits(free, need, at, length_s)), NEVER_S)

    assert first_fit(lines_of(boxes), 0, need, length_s, since_s, before_s) == expected


@MANY
@given(BOXES, st.integers(1, ROOM), st.integers(1, 15), SECONDS, st.integers(0, 50))
def test_last_fit_is_the_last_second_that_has_room(boxes: list[Box], need: int, length_s: int, since_s: int, until_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(until_s, since_s - 1, -1) if fits(free, need, at, length_s)), NONE)

    assert last_fit(lines_of(boxes), 0, need, length_s, since_s, until_s) == expected


@MANY
@given(BOXES, st.integers(1, ROOM), SECONDS)
def test_free_until_is_the_first_second_that_has_no_room(boxes: list[Box], need: int, at_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(at_s, END_S) if free[at] < need), NEVER_S)

    assert free_until(lines_of(boxes), 0, need, at_s) == (NONE if expected == at_s else expected)


@MANY
@given(BOXES, st.integers(1, ROOM), SECONDS)
def test_free_since_is_the_second_behind_the_last_that_had_no_room(boxes: list[Box], need: int, at_s: int) -> None:
    free = free_of(boxes)
    expected = next((at + 1 for at in range(at_s - 1, -1, -1) if free[at] < need), 0)

    assert free_since(lines_of(boxes), 0, need, at_s) == expected


@MANY
@given(BOXES, SECONDS)
def test_the_next_step_is_the_next_second_that_differs(boxes: list[Box], after_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(after_s + 1, END_S) if free[at] != free[at - 1]), NEVER_S)

    assert next_step_s(lines_of(boxes), 0, after_s) == expected


@MANY
@given(BOXES, SECONDS)
def test_a_line_rises_where_more_is_free_than_the_second_before(boxes: list[Box], at_s: int) -> None:
    free = free_of(boxes)

    assert rises(lines_of(boxes), 0, at_s) == (at_s > 0 and free[at_s] > free[at_s - 1])


@MANY
@given(BOXES, BOXES, SECONDS)
def test_what_is_forgotten_changes_nothing_that_is_to_come(boxes: list[Box], later: list[Box], now_s: int) -> None:
    """Also when boxes that began before are taken and given back afterwards."""
    lines = with_spare(lines_of(boxes), 2 * len(later))

    for line in (0, 1):
        forget_before(lines, line, now_s)
    for box in later:
        change(lines, box.line, box.start_s, box.end_s, box.by)

    for line in (0, 1):
        free = free_of(boxes + later, line)
        expected = [(at, free[at]) for at in range(now_s, END_S) if at == now_s or free[at] != free[at - 1]]
        assert steps_of(lines, line) == expected
    assert unused_count(lines) == lines.unused[1]


@MANY
@given(BOXES, BOXES, st.integers(0, 30))
def test_more_unused_steps_and_more_lines_change_no_line(boxes: list[Box], later: list[Box], spare: int) -> None:
    lines = with_spare(lines_of(boxes), spare)
    assert lines.unused[1] >= spare
    assert unused_count(lines) == lines.unused[1]

    lines = with_spare(with_lines(lines, [3], 0), 2 * len(later))
    for box in later:
        change(lines, box.line, box.start_s, box.end_s, box.by)

    both = lines_of(boxes + later)
    assert [steps_of(lines, line) for line in (0, 1)] == [steps_of(both, line) for line in (0, 1)]
    assert steps_of(lines, 2) == [(0, 3)]


@MANY
@given(BOXES, BOXES)
def test_a_copy_shares_nothing_that_changes(boxes: list[Box], later: list[Box]) -> None:
    lines = with_spare(lines_of(boxes), 2 * len(later))
    copied = copy_lines(lines)
    for box in later:
        change(copied, box.line, box.start_s, box.end_s, box.by)

    assert steps_of(lines, 0) == steps_of(lines_of(boxes), 0)
    assert steps_of(copied, 0) == steps_of(lines_of(boxes + later), 0)


def test_no_lines_at_all_can_become_some() -> None:
    lines = with_lines(new_lines(np.empty(0, np.int64), since_s=7, spare=0), [5], 7)

    assert steps_of(lines, 0) == [(7, 5)]


def test_what_never_ends_ends_where_all_is_cut() -> None:
    lines = new_lines(np.full(1, ROOM, np.int64), since_s=0, spare=2)

    change(lines, 0, 10, NEVER_S, -ROOM)

    assert steps_of(lines, 0) == [(0, ROOM), (10, 0), (FOREVER_S, ROOM)]
    assert first_fit(lines, 0, 1, 100, 0, NEVER_S) == FOREVER_S


def test_without_an_unused_step_it_says_so_instead_of_writing_elsewhere() -> None:
    lines = new_lines(np.full(1, ROOM, np.int64), since_s=0, spare=1)

    with pytest.raises(MemoryError):
        change(lines, 0, 10, 20, -1)

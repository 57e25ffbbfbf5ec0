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
    Profiles,
    change,
    copy_profiles,
    first_fit,
    forget_before,
    free_since,
    free_until,
    last_fit,
    least_free,
    new_profiles,
    next_step_s,
    rises,
    with_more_profiles,
    with_unused_steps,
)
from tests.effort import examples

ROOM = 4
# All boxes are over by then.
END_S = 60
MANY = examples(300)


@dataclass(frozen=True)
class Box:
    index: int
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


def profiles_of(boxes: list[Box]) -> Profiles:
    profiles = new_profiles(np.full(2, ROOM, np.int64), since_s=0, unused_count=2 * len(boxes))
    for box in boxes:
        change(profiles, box.index, box.start_s, box.end_s, box.by)
    return profiles


def free_of(boxes: list[Box], index: int = 0) -> list[int]:
    return [ROOM + sum(box.by for box in boxes if box.index == index and box.start_s <= at < box.end_s) for at in range(END_S)]


def steps_of(profiles: Profiles, index: int) -> list[tuple[int, int]]:
    steps, step = [], int(profiles.head[index])
    while step != NONE:
        steps.append((int(profiles.steps[step, AT_S]), int(profiles.steps[step, FREE])))
        step = int(profiles.steps[step, AFTER])
    return steps


def unused_count(profiles: Profiles) -> int:
    count, step = 0, int(profiles.unused[0])
    while step != NONE:
        count, step = count + 1, int(profiles.steps[step, AFTER])
    return count


def fits(free: list[int], need: int, start_s: int, length_s: int) -> bool:
    """It stays behind the end of the list as it was in the end."""
    return all(free[min(at, END_S - 1)] >= need for at in range(start_s, start_s + length_s))


@MANY
@given(BOXES)
def test_a_line_is_the_sum_of_its_boxes_with_no_step_that_is_none(boxes: list[Box]) -> None:
    profiles = profiles_of(boxes)

    for index in (0, 1):
        free = free_of(boxes, index)
        assert steps_of(profiles, index) == [(at, free[at]) for at in range(END_S) if at == 0 or free[at] != free[at - 1]]


@MANY
@given(BOXES)
def test_no_step_is_ever_lost(boxes: list[Box]) -> None:
    profiles = profiles_of(boxes)

    in_use = len(steps_of(profiles, 0)) + len(steps_of(profiles, 1))
    assert unused_count(profiles) == profiles.unused[1] == len(profiles.steps) - in_use


@MANY
@given(BOXES, st.permutations(range(7)))
def test_what_is_taken_and_given_back_in_any_order_leaves_no_trace(boxes: list[Box], order: list[int]) -> None:
    profiles = profiles_of(boxes)
    for box in (boxes[i] for i in order if i < len(boxes)):
        change(profiles, box.index, box.start_s, box.end_s, -box.by)

    assert [steps_of(profiles, index) for index in (0, 1)] == [[(0, ROOM)], [(0, ROOM)]]
    assert profiles.unused[1] == 2 * len(boxes)


@MANY
@given(BOXES, SECONDS, st.integers(1, 15))
def test_least_free_is_the_least_of_all_seconds(boxes: list[Box], start_s: int, length_s: int) -> None:
    assert least_free(profiles_of(boxes), 0, start_s, start_s + length_s) == min(free_of(boxes)[start_s : start_s + length_s])


@MANY
@given(BOXES, st.integers(1, ROOM), st.integers(1, 15), SECONDS, st.integers(0, 50))
def test_first_fit_is_the_first_second_that_has_room(boxes: list[Box], need: int, length_s: int, since_s: int, before_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(since_s, before_s) if fits(free, need, at, length_s)), NEVER_S)

    assert first_fit(profiles_of(boxes), 0, need, length_s, since_s, before_s) == expected


@MANY
@given(BOXES, st.integers(1, ROOM), st.integers(1, 15), SECONDS, st.integers(0, 50))
def test_last_fit_is_the_last_second_that_has_room(boxes: list[Box], need: int, length_s: int, since_s: int, until_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(until_s, since_s - 1, -1) if fits(free, need, at, length_s)), NONE)

    assert last_fit(profiles_of(boxes), 0, need, length_s, since_s, until_s) == expected


@MANY
@given(BOXES, st.integers(1, ROOM), SECONDS)
def test_free_until_is_the_first_second_that_has_no_room(boxes: list[Box], need: int, at_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(at_s, END_S) if free[at] < need), NEVER_S)

    assert free_until(profiles_of(boxes), 0, need, at_s) == (NONE if expected == at_s else expected)


@MANY
@given(BOXES, st.integers(1, ROOM), SECONDS)
def test_free_since_is_the_second_behind_the_last_that_had_no_room(boxes: list[Box], need: int, at_s: int) -> None:
    free = free_of(boxes)
    expected = next((at + 1 for at in range(at_s - 1, -1, -1) if free[at] < need), 0)

    assert free_since(profiles_of(boxes), 0, need, at_s) == expected


@MANY
@given(BOXES, SECONDS)
def test_the_next_step_is_the_next_second_that_differs(boxes: list[Box], after_s: int) -> None:
    free = free_of(boxes)
    expected = next((at for at in range(after_s + 1, END_S) if free[at] != free[at - 1]), NEVER_S)

    assert next_step_s(profiles_of(boxes), 0, after_s) == expected


@MANY
@given(BOXES, SECONDS)
def test_a_line_rises_where_more_is_free_than_the_second_before(boxes: list[Box], at_s: int) -> None:
    free = free_of(boxes)

    assert rises(profiles_of(boxes), 0, at_s) == (at_s > 0 and free[at_s] > free[at_s - 1])


@MANY
@given(BOXES, BOXES, SECONDS)
def test_what_is_forgotten_changes_nothing_that_is_to_come(boxes: list[Box], later: list[Box], now_s: int) -> None:
    """This holds also when boxes that began before are taken and given back afterwards."""
    profiles = with_unused_steps(profiles_of(boxes), 2 * len(later))

    for index in (0, 1):
        forget_before(profiles, index, now_s)
    for box in later:
        change(profiles, box.index, box.start_s, box.end_s, box.by)

    for index in (0, 1):
        free = free_of(boxes + later, index)
        expected = [(at, free[at]) for at in range(now_s, END_S) if at == now_s or free[at] != free[at - 1]]
        assert steps_of(profiles, index) == expected
    assert unused_count(profiles) == profiles.unused[1]


@MANY
@given(BOXES, BOXES, st.integers(0, 30))
def test_more_unused_steps_and_more_lines_change_no_line(boxes: list[Box], later: list[Box], spare: int) -> None:
    profiles = with_unused_steps(profiles_of(boxes), spare)
    assert profiles.unused[1] >= spare
    assert unused_count(profiles) == profiles.unused[1]

    profiles = with_unused_steps(with_more_profiles(profiles, [3], 0), 2 * len(later))
    for box in later:
        change(profiles, box.index, box.start_s, box.end_s, box.by)

    both = profiles_of(boxes + later)
    assert [steps_of(profiles, index) for index in (0, 1)] == [steps_of(both, index) for index in (0, 1)]
    assert steps_of(profiles, 2) == [(0, 3)]


@MANY
@given(BOXES, BOXES)
def test_a_copy_shares_nothing_that_changes(boxes: list[Box], later: list[Box]) -> None:
    profiles = with_unused_steps(profiles_of(boxes), 2 * len(later))
    copied = copy_profiles(profiles)
    for box in later:
        change(copied, box.index, box.start_s, box.end_s, box.by)

    assert steps_of(profiles, 0) == steps_of(profiles_of(boxes), 0)
    assert steps_of(copied, 0) == steps_of(profiles_of(boxes + later), 0)


def test_no_lines_at_all_can_become_some() -> None:
    profiles = with_more_profiles(new_profiles(np.empty(0, np.int64), since_s=7, unused_count=0), [5], 7)

    assert steps_of(profiles, 0) == [(7, 5)]


def test_what_never_ends_ends_where_all_is_cut() -> None:
    profiles = new_profiles(np.full(1, ROOM, np.int64), since_s=0, unused_count=2)

    change(profiles, 0, 10, NEVER_S, -ROOM)

    assert steps_of(profiles, 0) == [(0, ROOM), (10, 0), (FOREVER_S, ROOM)]
    assert first_fit(profiles, 0, 1, 100, 0, NEVER_S) == FOREVER_S


def test_without_an_unused_step_it_says_so_instead_of_writing_elsewhere() -> None:
    profiles = new_profiles(np.full(1, ROOM, np.int64), since_s=0, unused_count=1)

    with pytest.raises(MemoryError):
        change(profiles, 0, 10, 20, -1)

"""The headroom of all amounts agrees with the profiles themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.board.empty import new_table
from planner.board.table import Table
from planner.capacity.headroom import Headroom, have_headroom, headroom_of, leaves_any, remeasure_limit
from planner.capacity.placement import NO_INTS
from planner.capacity.profile import NEVER_S, Ints, free_until, stays_free
from tests.planner.capacity.test_profile import BOXES, MANY, ROOM, SECONDS, Box, profiles_of

AMOUNTS = st.integers(1, ROOM + 2)


def row_of(first: int, second: int, length_s: int, slot_s: int) -> tuple[Table, Ints]:
    """Returns the row of one request in one pool, below both limits."""
    table = new_table(1, 1)
    table.pools[0, 0], table.limits[0, 0, :2], table.amounts[0, 0, :2] = 0, (0, 1), (first, second)
    table.length_s[0], table.slot_s[0] = length_s, slot_s
    return table, np.zeros(1, np.int64)


@MANY
@given(BOXES, SECONDS)
def test_each_amount_is_free_as_long_as_its_profile_says(boxes: list[Box], at_s: int) -> None:
    profiles = profiles_of(boxes)
    headroom = headroom_of(profiles, *row_of(ROOM + 2, ROOM, 1, 1), at_s)

    for limit, most in enumerate((ROOM + 2, ROOM)):
        told = headroom.until_s[headroom.first[limit] : headroom.first[limit + 1]].tolist()
        assert told == [NEVER_S, *(free_until(profiles, limit, amount, at_s) for amount in range(1, most + 1))]
        assert leaves_any(headroom, limit, at_s) == (told[1] > at_s)


@MANY
@given(BOXES, AMOUNTS, AMOUNTS, st.integers(1, 15), st.integers(1, 60), SECONDS)
def test_a_request_is_let_by_if_both_limits_leave_enough_until_its_end_or_slot(
    boxes: list[Box], first: int, second: int, length_s: int, later_s: int, at_s: int
) -> None:
    profiles, end_s = profiles_of(boxes), at_s + min(length_s, later_s)
    table, rows = row_of(first, second, length_s, at_s + later_s)

    is_open = have_headroom(headroom_of(profiles, table, rows, at_s), table, 0, 0, at_s)

    assert is_open == all(stays_free(profiles, limit, amount, at_s, end_s) for limit, amount in enumerate((first, second)))


@MANY
@given(BOXES, SECONDS, SECONDS)
def test_what_was_told_stays_true_until_it_is_over(boxes: list[Box], at_s: int, later_s: int) -> None:
    """Later on nothing is said to be free that is not."""
    profiles, now_s = profiles_of(boxes), at_s + later_s
    table, rows = row_of(ROOM, ROOM, 1, NEVER_S)
    headroom = headroom_of(profiles, table, rows, at_s)
    fresh = Headroom(headroom.first, headroom.until_s.copy())
    for limit in range(len(profiles.head)):
        remeasure_limit(profiles, fresh, limit, now_s)

    for told, true in zip(headroom.until_s, fresh.until_s, strict=True):
        assert told <= now_s or told == true


def test_who_is_below_no_limit_is_let_by() -> None:
    table, rows = new_table(1, 1), np.zeros(1, np.int64)
    table.pools[0, 0], table.length_s[0], table.slot_s[0] = 0, 5, 9

    assert have_headroom(headroom_of(profiles_of([]), table, rows, 0), table, 0, 0, 0)
    assert have_headroom(headroom_of(profiles_of([]), table, NO_INTS, 0), table, 0, 0, 0)

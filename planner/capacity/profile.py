"""Step functions, compiled: how much of something is free at each second, and where a box fits beneath.

A *line* is the GPUs of a node, or the room of a limit (a slice, a quota). All lines of a kind share flat arrays, in which each line is
a linked list of steps, so that a box is put in or taken out in place and a whole plan is copied by copying three arrays.

Compiled, because a tick looks at every node for every box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.kernels import compiled, lean

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# These arrays have two or three dimensions; kernels are compiled for that number.
IntGrid = Annotated[NDArray[np.int64], 2]
IntCube = Annotated[NDArray[np.int64], 3]
BoolGrid = Annotated[NDArray[np.bool_], 2]

# Nothing that is known lasts longer: a box or a window beyond is cut here, so that every line is free in the end.
FOREVER_S: Final = 1 << 60
# The answer of a search that found nothing. Later than any box that begins by FOREVER_S.
NEVER_S: Final = 1 << 62
NONE: Final = -1

# The columns of a step. They lie side by side, as a walk along a line reads all three: that halves its time on large grounds.
AT_S, FREE, AFTER = 0, 1, 2


class Profiles(NamedTuple):
    """Line `i` begins at step `head[i]`. What is free at a step, its `FREE`, holds from its `AT_S` to that of the step `AFTER` it; of the
    last one, which has none, for ever.

    Times before a line's first step are forgotten: what is taken or given back there is cut off. `free` may fall below zero where the
    books contradict themselves, for example where a closed window covers a running box; nothing fits there.
    `unused`: the first of the steps that are in no line, and how many these are.
    """

    head: Ints
    steps: IntGrid
    unused: Ints


def new_profiles(free: Ints, *, since_s: int, unused_count: int) -> Profiles:
    """One line each, all of it free; and `unused_count` unused steps. A box takes two steps of each of its lines at most."""
    count, most = len(free), len(free) + unused_count
    steps = np.zeros((most, 3), np.int64)
    steps[:, AT_S], steps[:, AFTER] = since_s, NONE
    steps[:count, FREE] = free
    steps[count : most - 1, AFTER] = np.arange(count + 1, most)
    return Profiles(np.arange(count, dtype=np.int64), steps, np.array([count if unused_count else NONE, unused_count], np.int64))


def with_unused_steps(profiles: Profiles, unused_count: int) -> Profiles:
    """The same lines with at least so many unused steps; copied only if need be, and then to twice the size."""
    if profiles.unused[1] >= unused_count:
        return profiles
    old = len(profiles.steps)
    more = max(unused_count, old)
    steps = np.concatenate([profiles.steps, np.zeros((more, 3), np.int64)])
    steps[old:, AFTER] = np.arange(old + 1, old + more + 1)
    steps[-1, AFTER] = profiles.unused[0]
    return Profiles(profiles.head, steps, np.array([old, profiles.unused[1] + more], np.int64))


def with_more_profiles(profiles: Profiles, free: Sequence[int], since_s: int) -> Profiles:
    """More lines, behind the others."""
    profiles = with_unused_steps(profiles, len(free))
    return profiles._replace(head=np.concatenate([profiles.head, take_steps(profiles, since_s, np.array(free, np.int64))]))


def copy_profiles(profiles: Profiles) -> Profiles:
    return Profiles(*(array.copy() for array in profiles))


@lean
def take_step(profiles: Profiles, at_s: int, free: int, after: int) -> int:
    step = int(profiles.unused[0])
    if step == NONE:
        raise MemoryError("no unused step")
    profiles.unused[0] = profiles.steps[step, AFTER]
    profiles.unused[1] -= 1
    profiles.steps[step, AT_S] = at_s
    profiles.steps[step, FREE] = free
    profiles.steps[step, AFTER] = after
    return step


@compiled
def take_steps(profiles: Profiles, at_s: int, free: Ints) -> Ints:
    """One for each, of lines of their own."""
    steps = np.empty(len(free), np.int64)
    for i in range(len(free)):
        steps[i] = take_step(profiles, at_s, free[i], NONE)
    return steps


@lean
def drop_step(profiles: Profiles, step: int) -> None:
    profiles.steps[step, AFTER] = profiles.unused[0]
    profiles.unused[0] = step
    profiles.unused[1] += 1


@lean
def end_of(profiles: Profiles, step: int) -> int:
    after = profiles.steps[step, AFTER]
    return int(profiles.steps[after, AT_S]) if after != NONE else NEVER_S


@lean
def change(profiles: Profiles, index: int, start_s: int, end_s: int, by: int) -> None:
    """Add `by` to what is free over `[start_s, end_s)`. O(steps of the line)."""
    step, before = profiles.head[index], NONE
    start_s, end_s = max(start_s, profiles.steps[step, AT_S]), min(end_s, FOREVER_S)
    if start_s >= end_s:
        return
    while end_of(profiles, step) <= start_s:
        before, step = step, profiles.steps[step, AFTER]
    if profiles.steps[step, AT_S] < start_s:
        profiles.steps[step, AFTER] = take_step(profiles, start_s, profiles.steps[step, FREE], profiles.steps[step, AFTER])
        before, step = step, profiles.steps[step, AFTER]
    first, last = step, step
    while step != NONE and profiles.steps[step, AT_S] < end_s:
        if end_of(profiles, step) > end_s:
            profiles.steps[step, AFTER] = take_step(profiles, end_s, profiles.steps[step, FREE], profiles.steps[step, AFTER])
        profiles.steps[step, FREE] += by
        last, step = step, profiles.steps[step, AFTER]
    join(profiles, last, step)
    if before != NONE:
        join(profiles, before, first)


@lean
def join(profiles: Profiles, step: int, after: int) -> None:
    """Two neighbors that are equal become one."""
    if after != NONE and profiles.steps[step, FREE] == profiles.steps[after, FREE]:
        profiles.steps[step, AFTER] = profiles.steps[after, AFTER]
        drop_step(profiles, after)


@lean
def forget_before(profiles: Profiles, index: int, now_s: int) -> None:
    """Drop what is over: keeps a long-lived plan short."""
    step = profiles.head[index]
    while end_of(profiles, step) <= now_s:
        profiles.head[index] = profiles.steps[step, AFTER]
        drop_step(profiles, step)
        step = profiles.head[index]
    profiles.steps[step, AT_S] = max(profiles.steps[step, AT_S], now_s)


@lean
def least_free(profiles: Profiles, index: int, start_s: int, end_s: int) -> int:
    """Free throughout `[start_s, end_s)`."""
    step = profiles.head[index]
    while end_of(profiles, step) <= start_s:
        step = profiles.steps[step, AFTER]
    least = int(profiles.steps[step, FREE])
    while end_of(profiles, step) < end_s:
        step = profiles.steps[step, AFTER]
        least = min(least, profiles.steps[step, FREE])
    return least


@lean
def stays_free(profiles: Profiles, index: int, need: int, start_s: int, end_s: int) -> bool:
    """Is so much free throughout `[start_s, end_s)`? Sooner than by `least_free` where it is not."""
    step = profiles.head[index]
    while end_of(profiles, step) <= start_s:
        step = profiles.steps[step, AFTER]
    while profiles.steps[step, FREE] >= need:
        if end_of(profiles, step) >= end_s:
            return True
        step = profiles.steps[step, AFTER]
    return False


@lean
def first_fit(profiles: Profiles, index: int, need: int, length_s: int, since_s: int, before_s: int) -> int:
    """The first second in `[since_s, before_s)` from which on `need` is free for `length_s`, or NEVER_S."""
    step, start_s = profiles.head[index], NEVER_S
    while step != NONE:
        end_s = end_of(profiles, step)
        if end_s > since_s:
            if profiles.steps[step, FREE] < need:
                start_s = NEVER_S
                if end_s >= before_s:
                    return NEVER_S
            else:
                start_s = min(start_s, max(profiles.steps[step, AT_S], since_s))
                if start_s >= before_s:
                    return NEVER_S
                if end_s - start_s >= length_s:
                    return int(start_s)
        step = profiles.steps[step, AFTER]
    return NEVER_S


@lean
def last_fit(profiles: Profiles, index: int, need: int, length_s: int, since_s: int, until_s: int) -> int:
    """The last second in `[since_s, until_s]` from which on `need` is free for `length_s`, or NONE."""
    step, start_s, found_s = profiles.head[index], NEVER_S, NONE
    while step != NONE and (start_s <= until_s or profiles.steps[step, AT_S] <= until_s):
        end_s = end_of(profiles, step)
        if profiles.steps[step, FREE] < need:
            start_s = NEVER_S
        elif end_s > since_s:
            start_s = min(start_s, max(profiles.steps[step, AT_S], since_s))
            if end_s - start_s >= length_s and start_s <= until_s:
                found_s = min(end_s - length_s, until_s)
        step = profiles.steps[step, AFTER]
    return found_s


@lean
def free_until(profiles: Profiles, index: int, need: int, at_s: int) -> int:
    """How long `need` stays free from `at_s` on; NONE when it is not free then."""
    step = profiles.head[index]
    while end_of(profiles, step) <= at_s:
        step = profiles.steps[step, AFTER]
    if profiles.steps[step, FREE] < need:
        return NONE
    while step != NONE and profiles.steps[step, FREE] >= need:
        at_s = end_of(profiles, step)
        step = profiles.steps[step, AFTER]
    return at_s


@lean
def free_since(profiles: Profiles, index: int, need: int, at_s: int) -> int:
    """Since when `need` has been free without a break until `at_s`; `at_s` itself when just before it was not."""
    step, since_s = profiles.head[index], NEVER_S
    while step != NONE and profiles.steps[step, AT_S] < at_s:
        since_s = min(since_s, profiles.steps[step, AT_S]) if profiles.steps[step, FREE] >= need else NEVER_S
        step = profiles.steps[step, AFTER]
    return min(since_s, at_s)


@lean
def next_step_s(profiles: Profiles, index: int, after_s: int) -> int:
    """When it changes next, after `after_s`; NEVER_S if it does not."""
    step = profiles.head[index]
    while step != NONE and profiles.steps[step, AT_S] <= after_s:
        step = profiles.steps[step, AFTER]
    return int(profiles.steps[step, AT_S]) if step != NONE else NEVER_S


@lean
def rises(profiles: Profiles, index: int, at_s: int) -> bool:
    """Does more become free just then?"""
    step, before = profiles.head[index], NEVER_S
    while end_of(profiles, step) <= at_s:
        before, step = profiles.steps[step, FREE], profiles.steps[step, AFTER]
    return bool(profiles.steps[step, AT_S] == at_s and profiles.steps[step, FREE] > before)

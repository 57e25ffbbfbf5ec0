"""Compiled code keeps step functions: how much is free at each second, and where a box fits below.

A profile is of the free GPUs of a node, or of what a limit (a slice, a quota) leaves. Each is a linked list of steps in flat arrays that
all profiles share: a box is added or removed in place, and copying three arrays copies a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.kernels import compiled, lean

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Arrays of two or three dimensions, for which the kernels are compiled.
IntGrid = Annotated[NDArray[np.int64], 2]
IntCube = Annotated[NDArray[np.int64], 3]
BoolGrid = Annotated[NDArray[np.bool_], 2]

# Boxes and windows are cut here, so that every profile is free in the end.
FOREVER_S: Final = 1 << 60
# The answer of a search that found nothing: later than the end of any box that begins by FOREVER_S.
NEVER_S: Final = 1 << 62
NONE: Final = -1

# The columns of a step. They lie side by side because a walk along a profile reads all three, which halves its time on large clusters.
AT_S, FREE, AFTER = 0, 1, 2


class Profiles(NamedTuple):
    """Times before the first step of a profile are forgotten, and changes there are cut off.

    `FREE` is negative where the data contradict themselves, e.g. a closed window covers a running box; nothing fits there.
    """

    head: Ints  # profile `i` begins at step `head[i]`
    steps: IntGrid  # `FREE` holds from `AT_S` until that of the step `AFTER`; NONE: for ever
    unused: Ints  # the first step that is in no profile, and how many there are


def new_profiles(free: Ints, *, since_s: int, unused_count: int) -> Profiles:
    """A box needs at most two unused steps for each of its profiles."""
    count, most = len(free), len(free) + unused_count
    steps = np.zeros((most, 3), np.int64)
    steps[:, AT_S], steps[:, AFTER] = since_s, NONE
    steps[:count, FREE] = free
    steps[count : most - 1, AFTER] = np.arange(count + 1, most)
    return Profiles(np.arange(count, dtype=np.int64), steps, np.array([count if unused_count else NONE, unused_count], np.int64))


def with_unused_steps(profiles: Profiles, unused_count: int) -> Profiles:
    """Makes room for at least this many; it copies only if needed, and then to at least twice the size."""
    if profiles.unused[1] >= unused_count:
        return profiles
    old = len(profiles.steps)
    more = max(unused_count, old)
    steps = np.concatenate([profiles.steps, np.zeros((more, 3), np.int64)])
    steps[old:, AFTER] = np.arange(old + 1, old + more + 1)
    steps[-1, AFTER] = profiles.unused[0]
    return Profiles(profiles.head, steps, np.array([old, profiles.unused[1] + more], np.int64))


def with_more_profiles(profiles: Profiles, free: Sequence[int], since_s: int) -> Profiles:
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
    """Add `by` to what is free over `[start_s, end_s)`. O(steps of the profile)."""
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
    if after != NONE and profiles.steps[step, FREE] == profiles.steps[after, FREE]:
        profiles.steps[step, AFTER] = profiles.steps[after, AFTER]
        drop_step(profiles, after)


@lean
def forget_before(profiles: Profiles, index: int, now_s: int) -> None:
    """Drop the steps that are over, to keep long-lived plans short."""
    step = profiles.head[index]
    while end_of(profiles, step) <= now_s:
        profiles.head[index] = profiles.steps[step, AFTER]
        drop_step(profiles, step)
        step = profiles.head[index]
    profiles.steps[step, AT_S] = max(profiles.steps[step, AT_S], now_s)


@compiled
def forget_all_before(profiles: Profiles, now_s: int) -> None:
    for index in range(len(profiles.head)):
        forget_before(profiles, index, now_s)


@lean
def least_free(profiles: Profiles, index: int, start_s: int, end_s: int) -> int:
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
    """Returns the first second in `[since_s, before_s)` from which `need` is free for `length_s`, or NEVER_S."""
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
    """Returns the last second in `[since_s, until_s]` from which `need` is free for `length_s`, or NONE."""
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
    """NONE if it is not free at `at_s`."""
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
    step, since_s = profiles.head[index], NEVER_S
    while step != NONE and profiles.steps[step, AT_S] < at_s:
        since_s = min(since_s, profiles.steps[step, AT_S]) if profiles.steps[step, FREE] >= need else NEVER_S
        step = profiles.steps[step, AFTER]
    return min(since_s, at_s)


@lean
def next_step_s(profiles: Profiles, index: int, after_s: int) -> int:
    """Returns the next change after `after_s`, or NEVER_S."""
    step = profiles.head[index]
    while step != NONE and profiles.steps[step, AT_S] <= after_s:
        step = profiles.steps[step, AFTER]
    return int(profiles.steps[step, AT_S]) if step != NONE else NEVER_S


@lean
def rises(profiles: Profiles, index: int, at_s: int) -> bool:
    """Tells whether more becomes free at this second."""
    step, before = profiles.head[index], NEVER_S
    while end_of(profiles, step) <= at_s:
        before, step = profiles.steps[step, FREE], profiles.steps[step, AFTER]
    return bool(profiles.steps[step, AT_S] == at_s and profiles.steps[step, FREE] > before)

"""Free GPUs of one node over time, and how boxes fit beneath."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# Nothing that is known lasts longer: a box or a window beyond is cut here, so that every node is empty in the end.
FOREVER_S: Final = 1 << 60
# Where the last gap of a node ends. Later than any box that begins by FOREVER_S.
NEVER_S: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Gaps:
    """The stretches `[starts[i], ends[i])` in which a node has so many GPUs free, in order; the last one never ends."""

    starts: list[int]
    ends: list[int]
    longest_s: int  # of those that end


class NodeProfile:
    """A step function: how many GPUs of the node are free at each second from `since_s` on.

    Times before `since_s` are forgotten: what is taken or given back there is cut off. `free` may fall below zero where the
    books contradict themselves, for example where a closed window covers a running box; nothing fits there.
    """

    __slots__ = ("_free", "_gaps", "_times", "gpu_count", "id", "order")

    def __init__(self, node_id: str, gpu_count: int, *, order: int, since_s: int) -> None:
        self.id = node_id
        self.gpu_count = gpu_count
        self.order = order
        # _free[i] holds over [_times[i], _times[i + 1]), the last one for ever. No two neighbors are equal.
        self._times = [since_s]
        self._free = [gpu_count]
        self._gaps: dict[int, Gaps] = {}

    def take(self, start_s: int, end_s: int, gpus: int) -> None:
        """O(breakpoints), in C but for those within the stretch."""
        self._add(start_s, end_s, -gpus)

    def give(self, start_s: int, end_s: int, gpus: int) -> None:
        self._add(start_s, end_s, gpus)

    def forget_before(self, now_s: int) -> None:
        keep = bisect_right(self._times, now_s) - 1
        if keep > 0:
            del self._times[:keep], self._free[:keep]
            self._times[0] = now_s
            self._gaps.clear()

    def steps(self) -> Iterator[tuple[int, int]]:
        """(from when, how many are free), in order of time."""
        return zip(self._times, self._free, strict=True)

    def least_free(self, start_s: int, end_s: int) -> int:
        """Free throughout `[start_s, end_s)`."""
        first = bisect_right(self._times, start_s) - 1
        return min(self._free[max(first, 0) : bisect_left(self._times, end_s, max(first, 0) + 1)])

    def gaps(self, level: int) -> Gaps:
        """Where at least `level` GPUs are free. Kept until the node changes, for most nodes don't between two fits."""
        found = self._gaps.get(level)
        if found is None:
            found = self._gaps[level] = self._find_gaps(level)
        return found

    def first_fit(self, level: int, length_s: int, since_s: int) -> int:
        """The first second from `since_s` on at which `level` GPUs are free for `length_s`."""
        gaps = self._gaps.get(level) or self.gaps(level)  # the planner's innermost call: half of its time goes here
        starts, ends = gaps.starts, gaps.ends
        if length_s <= gaps.longest_s:
            for i in range(bisect_right(ends, since_s), len(ends)):
                start_s = starts[i] if starts[i] > since_s else since_s
                if ends[i] - start_s >= length_s:
                    return start_s
        return starts[-1] if starts[-1] > since_s else since_s

    def free_again_s(self, level: int, at_s: int) -> int:
        """Since when `level` GPUs have been free without a break until `at_s`; `at_s` itself when just before they were not."""
        i = bisect_left(self._times, at_s) - 1
        if i < 0 or self._free[i] < level:
            return at_s
        while i > 0 and self._free[i - 1] >= level:
            i -= 1
        return self._times[i]

    def free_until_s(self, level: int, at_s: int) -> int:
        """The end of the gap that holds `at_s`."""
        gaps = self.gaps(level)
        return gaps.ends[bisect_right(gaps.starts, at_s) - 1]

    def _find_gaps(self, level: int) -> Gaps:
        starts: list[int] = []
        ends: list[int] = []
        is_open = False
        for at_s, free in zip(self._times, self._free, strict=True):
            if (free >= level) is not is_open:
                (ends if is_open else starts).append(at_s)
                is_open = not is_open
        longest_s = max((end - start for start, end in zip(starts, ends, strict=False)), default=0)
        ends.append(NEVER_S)
        return Gaps(starts, ends, longest_s)

    def _add(self, start_s: int, end_s: int, change: int) -> None:
        start_s, end_s = max(start_s, self._times[0]), min(end_s, FOREVER_S)
        if start_s >= end_s:
            return
        first, last = self._cut(start_s), self._cut(end_s)
        free = self._free
        for i in range(first, last):
            free[i] += change
        self._join(last)
        self._join(first)
        self._gaps.clear()

    def _cut(self, at_s: int) -> int:
        """The index of a step that begins at `at_s`, made if need be."""
        i = bisect_left(self._times, at_s)
        if i == len(self._times) or self._times[i] != at_s:
            self._times.insert(i, at_s)
            self._free.insert(i, self._free[i - 1])
        return i

    def _join(self, i: int) -> None:
        if i > 0 and self._free[i] == self._free[i - 1]:
            del self._times[i], self._free[i]

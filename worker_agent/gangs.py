"""Which nodes of a box take a step together, as one pass finds them. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from worker_agent.protocol import Assignment, Phase
from worker_agent.state import Member


class Gangs:
    """Of these members, which all enter or are at work."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._boxes: dict[tuple[str, int], list[Member]] = defaultdict(list)
        for assignment, progress in members:
            self._boxes[assignment.gpr_id, assignment.run].append((assignment, progress))
        self._found: dict[tuple[str, int, str], tuple[str, ...] | None] = {}

    def at(self, step: str, assignment: Assignment) -> tuple[str, ...] | None:
        """Names of the nodes that take this step together with this one, itself included; None while one of them has not come so far.

        A node that enters a box that is at work takes it alone: the others are the workspace's.
        """
        key = (assignment.gpr_id, assignment.run, step)
        box = self._boxes[key[:2]]
        if any(progress.active_s is not None for _, progress in box):
            return (assignment.node,)
        if key not in self._found:
            self._found[key] = _together(step, box)
        return self._found[key]


def _together(step: str, box: Sequence[Member]) -> tuple[str, ...] | None:
    if len(box) < box[0][0].gang_count or any(_is_before(step, member) for member in box):
        return None
    return tuple(sorted(assignment.node for assignment, _ in box if step in assignment.entry_steps))


def _is_before(step: str, member: Member) -> bool:
    """It is not claimed yet, or has steps to do ahead of this one."""
    assignment, progress = member
    ahead = itertools.takewhile(lambda each: each != step, assignment.entry_steps)
    return progress.phase is Phase.PENDING or not set(ahead) <= set(progress.entry_done)

"""Finds the nodes of a box that run a step together. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from protocol.assignments import Assignment, Phase
from worker_agent.boxes.state import Member, Progress

AT_WORK_MAX: Final = 2  # a spare is measured against this many working nodes


class Gang(NamedTuple):
    """Names of nodes, in order. Those `at_work` are in use: they take part and are not judged."""

    nodes: tuple[str, ...] = ()
    at_work: tuple[str, ...] = ()


NO_GANG: Final = Gang()  # for a step that each node runs by itself


class Gangs:
    def __init__(self, members: Sequence[Member], *, is_broken: Callable[[str], bool] = lambda _: False) -> None:
        self._is_broken = is_broken
        self._boxes: dict[tuple[str, int], list[Member]] = defaultdict(list)
        for assignment, progress in members:
            self._boxes[assignment.gpr_id, assignment.run].append((assignment, progress))
        self._found: dict[tuple[str, int, str], Gang | None] = {}

    def at(self, step: str, assignment: Assignment, progress: Progress) -> Gang | None:
        """Return the nodes that run this step together, or None until all of them have reached it."""
        if progress.asked:  # a spare's running attempt keeps its nodes, since with others it would start again
            return _spare_s(assignment, progress.asked)
        key = (assignment.gpr_id, assignment.run, step)
        box = self._boxes[key[:2]]
        if any(progress.active_s is not None for _, progress in box):
            return self._beside(assignment, box)
        if key not in self._found:
            self._found[key] = _together(step, box)
        return self._found[key]

    def _beside(self, spare: Assignment, box: Sequence[Member]) -> Gang:
        # A spare is not measured against the node that it replaces, and runs alone if the hub does not name that node.
        replaced = {assignment.replaces for assignment, _ in box}
        at_work = (assignment for assignment, progress in box if progress.active_s is not None and assignment.id not in replaced)
        well = sorted(assignment.node for assignment in at_work if not self._is_broken(assignment.node))
        return _spare_s(spare, tuple(well[:AT_WORK_MAX]) if spare.replaces else ())


def why_alone(assignment: Assignment) -> str:
    if assignment.gang_count < 2:
        return "the box has one node"
    if assignment.replaces:
        return "no other node of the box that is well is at work, or takes this with it"
    return "the other nodes of the box are at work, or leave this out"


def _spare_s(spare: Assignment, asked: tuple[str, ...]) -> Gang:
    return Gang(tuple(sorted((spare.node, *asked))), asked)


def _together(step: str, box: Sequence[Member]) -> Gang | None:
    if len(box) < box[0][0].gang_count or any(_is_before(step, member) for member in box):
        return None
    return Gang(tuple(sorted(assignment.node for assignment, _ in box if step in assignment.entry_steps)))


def _is_before(step: str, member: Member) -> bool:
    assignment, progress = member
    ahead = itertools.takewhile(lambda each: each != step, assignment.entry_steps)
    return progress.phase is Phase.PENDING or not set(ahead) <= set(progress.entry_done)

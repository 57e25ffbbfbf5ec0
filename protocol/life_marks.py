"""Life marks: what happened to a GPR, for Kubernetes events on its namespaces and nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.scalars import Id, Number, Word

LIFE_TOLD_S = 900.0  # so long the hub tells of a mark; less than the hour for which an API server keeps an event
LIFE_MARKS_MAX = 500  # in one answer: the latest
LIFE_NODES_MAX = 256  # of one mark: a larger box is told on so many of its nodes


class LifeMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a GPR, however it was filed: for those who look at its workspace's namespaces and its nodes.

    `id`: the same whenever it is told. `slice`: its id, as in Assignment.slice_id. `state`: the one that it came to, or, with `percent`, in
    which so much of its time had passed. `message`: a sentence for members of the workspace. `nodes`: names of those that it had then,
    LIFE_NODES_MAX at most.
    """

    id: Id
    gpr_id: Id
    gpr_name: Word
    slice: Id
    at_s: float
    state: Word
    percent: Number = 0
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""
    nodes: tuple[str, ...] = ()

"""The agent turns these milestones of a GPR into Kubernetes events on its namespaces and nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from protocol.scalars import Id, Number, Word

LIFE_TOLD_S = 900.0  # the hub sends a mark for this long; less than the hour for which an API server keeps an event
LIFE_MARKS_MAX = 500  # in one answer, the latest ones
LIFE_NODES_MAX = 256  # in one mark; a larger box lists only this many of its nodes


class LifeMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: Id  # stays the same when the mark is sent again
    gpr_id: Id
    gpr_name: Word
    slice: Id  # its id, as in Assignment.slice_id
    at_s: float
    state: Word  # the state that the GPR reached, or, with `percent`, its state when that share of its time had passed
    percent: Number = 0
    reason: Word = ""  # of the event, where the state does not tell it
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""  # a sentence for members of the workspace
    nodes: tuple[str, ...] = ()  # names of its nodes at that time

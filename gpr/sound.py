"""What is stored, held against what a plan can be made with: what makes no sense is left out of it, and the others are planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from gpr.rows import Ask, Stood, are_ids, asks_waiting, promises_standing
from gpr.spec import GPUS_PER_NODE_MAX, NODES_MAX

REQUEST, PROMISE, SLOT, BOX = "request", "promise", "slot", "box"
CLUSTER, MAINTENANCE, SUPPLY, NODE = "cluster", "maintenance", "supply", "node"
NOTHING_OF_ITS_KIND: Final = "A column holds nothing of its kind."


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A stored row that makes no sense: what of the GPR, and why not. Without its slot it is planned all the same."""

    gpr_id: UUID
    what: str
    why: str

    @property
    def is_left_out(self) -> bool:
        return self.what != SLOT


class Unreadable(NamedTuple):
    """Of a cluster: what of it."""

    cluster_id: UUID
    what: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits, in order of age, what they were promised, and what cannot be read. Of slots that cannot no nodes are left."""

    asks: list[Ask]
    promises: dict[str, Stood]
    spoiled: tuple[Spoiled, ...]

    @property
    def slotless(self) -> set[UUID]:
        """Who had a slot that cannot be read."""
        return {row.gpr_id for row in self.spoiled if row.what == SLOT}


def waiting_load() -> Waiting:
    """Two queries."""
    asks, lost_asks = asks_waiting()
    promises, lost_promises = promises_standing()
    spoiled = [Spoiled(pk, REQUEST, NOTHING_OF_ITS_KIND) for pk in lost_asks]
    spoiled += [Spoiled(pk, PROMISE, NOTHING_OF_ITS_KIND) for pk in lost_promises]
    spoiled += [Spoiled(ask.pk, REQUEST, why) for ask in asks if (why := why_unreadable(ask))]
    left_out = {row.gpr_id for row in spoiled}
    for id_, stood in promises.items():
        if not are_ids(stood.slot_nodes):
            promises[id_] = stood._replace(slot_nodes=[])
            spoiled.append(Spoiled(stood.gpr_id, SLOT, "Its nodes are no list of ids."))
    return Waiting([ask for ask in asks if ask.pk not in left_out], promises, tuple(spoiled))


def why_unreadable(ask: Ask) -> str:
    """As a sentence; "" where a plan can be made with it."""
    if ask.allowed_shapes is not None and not _are_texts(ask.allowed_shapes):
        return "The shapes that it may have are no list of names."
    if ask.nodes > NODES_MAX or (ask.gpus_per_node or 0) > GPUS_PER_NODE_MAX:
        return "It asks for more than there could be."
    return ""


def _are_texts(stored: Any) -> bool:
    return type(stored) is list and all(type(each) is str for each in stored)

"""Events that the hub has not stored yet, numbered from 1 in each session."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from protocol.agents.events import AgentEvent, InventoryEvent, StepEvent
from protocol.agents.transport import BODY_MAX_BYTES
from protocol.nodes.inventory import NodeView

INVENTORY_EVERY_S = 600.0
# Limits of one message. A larger event goes alone.
BATCH, BATCH_BYTES = 200, BODY_MAX_BYTES // 2


def event_key(event: StepEvent) -> tuple[str, int, str, int]:
    """Identifies an attempt of a step: the hub stores one event for it."""
    return event.assignment_id, event.epoch, event.step, event.attempt


class EventOutbox:
    def __init__(self) -> None:
        self.session_epoch = 0
        self._queue: list[AgentEvent] = []
        # Events that were sent keep their numbers until they are stored. Of the others, only the newest inventory counts.
        self._last_seq = self._handed_seq = 0
        self._keys: set[tuple[str, int, str, int]] = set()
        self._inventory: tuple[NodeView, ...] | None = None
        self._inventory_due = 0.0

    def open_session(self, session_epoch: int, mono: float) -> None:
        """A new session counts from 1 and begins with the inventory."""
        if session_epoch == self.session_epoch:
            return
        self.session_epoch, self._last_seq, self._handed_seq = session_epoch, 0, 0
        steps = [event for event in self._queue if isinstance(event, StepEvent)]
        self._queue = []
        self._inventory_due = mono
        for event in steps:
            self._append(event)

    def add_steps(self, events: list[StepEvent]) -> None:
        for event in events:
            if event_key(event) not in self._keys:
                self._keys.add(event_key(event))
                self._append(event)

    def drop(self, events: list[StepEvent]) -> None:
        keys = {event_key(event) for event in events}
        if not keys:
            return
        rest = [event for event in self._queue if event.seq > self._handed_seq]  # the hub may know the others by their numbers
        self._queue = self._queue[: len(self._queue) - len(rest)]
        if rest:
            self._last_seq = rest[0].seq - 1
        for event in rest:
            if isinstance(event, StepEvent) and event_key(event) in keys:
                self._keys.discard(event_key(event))
            else:
                self._append(event)

    def see_inventory(self, nodes: tuple[NodeView, ...], mono: float) -> None:
        if not self.session_epoch or (nodes == self._inventory and mono < self._inventory_due):
            return
        self._inventory, self._inventory_due = nodes, mono + INVENTORY_EVERY_S
        self._replace_or_append(InventoryEvent(seq=0, nodes=nodes))

    def pending(self) -> tuple[AgentEvent, ...]:
        if not self.session_epoch:
            return ()
        if self._queue and self._queue[0].seq > self._handed_seq:
            self._handed_seq = self._queue[0].seq - 1 + sum(1 for _ in self._batch())
        return tuple(event for event in self._queue[:BATCH] if event.seq <= self._handed_seq)

    def acknowledge(self, stored_seq: int) -> set[tuple[str, int, str, int]]:
        """Returns the keys of stored step events."""
        stored = [event for event in self._queue if event.seq <= stored_seq]
        self._queue = [event for event in self._queue if event.seq > stored_seq]
        keys = {event_key(event) for event in stored if isinstance(event, StepEvent)}
        self._keys -= keys
        return keys

    def _append(self, event: AgentEvent) -> None:
        self._last_seq += 1
        self._queue.append(msgspec.structs.replace(event, seq=self._last_seq))

    def _replace_or_append(self, inventory: InventoryEvent) -> None:
        for place, event in enumerate(self._queue):
            if isinstance(event, InventoryEvent) and event.seq > self._handed_seq:
                self._queue[place] = msgspec.structs.replace(inventory, seq=event.seq)
                return
        self._append(inventory)

    def _batch(self) -> Iterator[AgentEvent]:
        size = 0
        for event in self._queue[:BATCH]:
            size += len(msgspec.json.encode(event))
            if size > BATCH_BYTES and event is not self._queue[0]:
                return
            yield event

"""What the hub has not stored yet, numbered from 1 in each session."""

from __future__ import annotations

import msgspec

from worker_agent.protocol import AgentEvent, InventoryEvent, NodeView, StepEvent

INVENTORY_EVERY_S = 600.0
BATCH = 200


def event_key(event: StepEvent) -> tuple[str, int, str, int]:
    """The hub counts each attempt once by this, whatever its number and session."""
    return event.assignment_id, event.epoch, event.step, event.attempt


class Outbox:
    """Step events come here once they are durable; an inventory is made anew after each restart, so it need not be."""

    def __init__(self) -> None:
        self.session_epoch = 0
        self._queue: list[AgentEvent] = []
        self._last_seq = 0
        self._keys: set[tuple[str, int, str, int]] = set()
        self._inventory: tuple[NodeView, ...] | None = None
        self._inventory_due = 0.0

    def open_session(self, session_epoch: int, mono: float) -> None:
        """A new session counts from 1 and begins with what this cluster is."""
        if session_epoch == self.session_epoch:
            return
        self.session_epoch, self._last_seq = session_epoch, 0
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

    def see_inventory(self, nodes: tuple[NodeView, ...], mono: float) -> None:
        if nodes == self._inventory and mono < self._inventory_due:
            return
        self._inventory, self._inventory_due = nodes, mono + INVENTORY_EVERY_S
        self._append(InventoryEvent(seq=0, nodes=nodes))

    def pending(self) -> tuple[AgentEvent, ...]:
        return tuple(self._queue[:BATCH]) if self.session_epoch else ()

    def acknowledge(self, stored_seq: int) -> set[tuple[str, int, str, int]]:
        """Returns the keys of the step events that are done with."""
        stored = [event for event in self._queue if event.seq <= stored_seq]
        self._queue = [event for event in self._queue if event.seq > stored_seq]
        keys = {event_key(event) for event in stored if isinstance(event, StepEvent)}
        self._keys -= keys
        return keys

    def _append(self, event: AgentEvent) -> None:
        self._last_seq += 1
        self._queue.append(msgspec.structs.replace(event, seq=self._last_seq))

"""The policies of the field, to be replayed beside ours. They plan on nodes too, and choose them as ours does; none promises."""

from __future__ import annotations

from bisect import insort

from gpr.planner.snapshot import Pool, Request, Slot
from gpr.planner.waiting import Turn, box_of
from gpr.planner.witness import Box, Witness


class Fifo:
    """Strictly one after the other: nobody starts before those ahead of it have, however much is free."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self._witness = Witness(pools, now_s=0)
        self._queue: list[Request] = []
        self._running: dict[str, Box] = {}

    def submit(self, request: Request) -> None:
        insort(self._queue, request, key=Turn.of)

    def release(self, request_id: str, now_s: int) -> None:
        self._witness.give(self._running.pop(request_id), since_s=now_s)

    def tick(self, now_s: int) -> list[tuple[str, Slot]]:
        """Start whom the policy starts now; answers ids and places."""
        return self._start_heads(now_s)

    def next_start_s(self) -> int | None:
        """Starts happen at submissions and releases only."""
        return None

    def promise_s(self, request_id: str) -> int | None:
        return None

    def _start_heads(self, now_s: int) -> list[tuple[str, Slot]]:
        started = []
        while self._queue:
            slot = self._witness.earliest(self._queue[0], now_s, before_s=now_s + 1)
            if slot is None:
                break
            started.append(self._start(self._queue.pop(0), slot))
        return started

    def _start(self, request: Request, slot: Slot) -> tuple[str, Slot]:
        box = self._running[request.id] = box_of(request, slot)
        self._witness.forget_before(slot.start_s, slot.nodes)
        self._witness.take(box)
        return request.id, slot


class Easy(Fifo):
    """EASY backfill: the head holds a reservation, anybody else may start now if that stays whole.

    Source: Lifka, The ANL/IBM SP scheduling system, JSSPP 1995. The reservation is made of nodes and anew at every event.
    """

    def tick(self, now_s: int) -> list[tuple[str, Slot]]:
        started = self._start_heads(now_s)
        if not self._queue:
            return started
        head = self._queue[0]
        reserved = self._witness.earliest(head, now_s)
        if reserved is None:  # cannot be: what never fits is refused before a replay
            return started
        reservation = box_of(head, reserved)
        self._witness.take(reservation)
        started += self._backfill(now_s)
        self._witness.give(reservation)
        return started

    def _backfill(self, now_s: int) -> list[tuple[str, Slot]]:
        started = []
        longest_s: dict[tuple[tuple[str, ...], int], int] = {}
        for request in self._queue[1:]:
            kind = (request.pools, request.gpus_per_node)
            if kind not in longest_s:
                longest_s[kind] = self._longest_now_s(request, now_s)
            if request.length_s > longest_s[kind]:
                continue
            slot = self._witness.earliest(request, now_s, before_s=now_s + 1)
            if slot is not None:
                self._queue.remove(request)
                started.append(self._start(request, slot))
                longest_s.clear()
        return started

    def _longest_now_s(self, request: Request, now_s: int) -> int:
        """How long at most so many GPUs are free on one node from now on: turns most of a long queue away at once."""
        nodes = (pair for pool in request.pools for pair in self._witness.fitting(pool, request.gpus_per_node))
        free = (node.free_until_s(level, now_s) for node, level in nodes if node.least_free(now_s, now_s + 1) >= level)
        return max(free, default=now_s) - now_s

"""Group commit: one thread does the work that several threads ask for at once."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

COMES_S: Final = 0.05
RECENT_S: Final = 1.0
MANY: Final = 8
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class _Turn(Generic[Asked, Answer]):
    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.is_done = False
        self.answer: Answer | Exception | None = None


class Group(Generic[Asked, Answer]):
    """`together` does up to `most` pieces of work and returns an answer or an error for each. If it raises, each caller runs `alone`."""

    # After a large batch more work usually follows at once. So the next one waits for a moment, for as many as the last one served and
    # left; otherwise those that wait already and those that follow would form two batches for ever.
    def __init__(
        self, *, together: Callable[[Sequence[Asked]], Sequence[Answer | Exception]], alone: Callable[[Asked], Answer], most: int
    ) -> None:
        self._together, self._alone, self._most = together, alone, most
        self._waiting: deque[_Turn[Asked, Answer]] = deque()
        self._is_led = False
        self._expected, self._ended_mono = 0, -math.inf
        self._lock = threading.Lock()
        self._changed, self._came = threading.Condition(self._lock), threading.Condition(self._lock)

    def do(self, asked: Asked) -> Answer:
        turn: _Turn[Asked, Answer] = _Turn(asked)
        with self._lock:
            self._waiting.append(turn)
            self._came.notify()
        try:
            while self._is_to_lead(turn):
                self._go()
        except BaseException:
            self._forget(turn)
            raise
        if turn.answer is None:
            return self._alone(asked)
        if isinstance(turn.answer, Exception):
            raise turn.answer
        return turn.answer

    def _is_to_lead(self, turn: _Turn[Asked, Answer]) -> bool:
        """Wait until another thread has done it, or until this one must lead."""
        with self._lock:
            self._changed.wait_for(lambda: turn.is_done or not self._is_led)
            if turn.is_done:
                return False
            self._is_led = True
            return True

    def _go(self) -> None:
        batch: list[_Turn[Asked, Answer]] = []
        answers: Sequence[Answer | Exception | None] = []
        try:
            batch = self._gather()
            answers = [None] * len(batch)
            answers = self._together([turn.asked for turn in batch]) if len(batch) > 1 else [self._alone(batch[0].asked)]
        except Exception as error:
            if len(batch) == 1:
                answers = [error]
        finally:
            with self._lock:
                for turn, answer in zip(batch, answers, strict=True):
                    turn.answer, turn.is_done = answer, True
                self._is_led = False
                self._expected = len(batch) + len(self._waiting) if len(batch) >= MANY else 0
                self._ended_mono = time.monotonic()
                self._changed.notify_all()

    def _gather(self) -> list[_Turn[Asked, Answer]]:
        with self._lock:
            is_recent = time.monotonic() < self._ended_mono + RECENT_S
            expected = min(self._most, self._expected) if is_recent else 0
            self._came.wait_for(lambda: len(self._waiting) >= expected, COMES_S)
            return [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]

    def _forget(self, turn: _Turn[Asked, Answer]) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)

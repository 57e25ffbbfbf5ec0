"""Decides when to ask again. Every request may be repeated: it has an Idempotency-Key, or changes nothing the second time."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

FIRST_PAUSE_S, PAUSE_MAX_S = 0.2, 5.0
AWAY = {502, 503, 504}
TOO_MANY = 429


@dataclass(slots=True)
class Patience:
    """Counts the tries of one request. `for_s` counts from its first try."""

    for_s: float
    begun_s: float = field(default_factory=time.monotonic)
    tries: int = 0

    def pause_s(self, *, status: int | None = None, retry_after: str = "") -> float | None:
        """Returns how long to wait before the next try; None: no more. `status` is None where no answer came."""
        if status is not None and status not in AWAY and not (status == TOO_MANY and retry_after):
            return None
        self.tries += 1
        pause_s = min(FIRST_PAUSE_S * 2.0 ** (self.tries - 1), PAUSE_MAX_S) * random.uniform(0.7, 1.0)  # noqa: S311  # spreads clients
        if retry_after.isdecimal():
            pause_s = max(pause_s, float(retry_after))
        is_over = time.monotonic() - self.begun_s + pause_s > self.for_s
        return None if is_over else pause_s

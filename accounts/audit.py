"""What becomes of users and tokens, told to whoever keeps the record. The journal stands on this floor's roof: it registers itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from accounts.models import User


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    message: str
    actor: User | None
    at: datetime


_listeners: list[Callable[[Change], None]] = []


def listen(listener: Callable[[Change], None]) -> None:
    """Called inside the transaction of the change."""
    _listeners.append(listener)


def tell(change: Change) -> None:
    for listener in _listeners:
        listener(change)

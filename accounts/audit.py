"""Reports changes to the journal, which this app must not import."""

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
    _listeners.append(listener)


def tell(change: Change) -> None:
    for listener in _listeners:
        listener(change)

"""Reports changes to the journal, which this app must not import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from accounts.models import User


@dataclass(frozen=True, slots=True)
class AccountChange:
    kind: str
    message: str
    actor: User | None
    at: datetime


_listeners: list[Callable[[AccountChange], None]] = []


def listen(listener: Callable[[AccountChange], None]) -> None:
    _listeners.append(listener)


def report(change: AccountChange) -> None:
    for listener in _listeners:
        listener(change)

"""Reports changes to the journal, which this app must not import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from accounts.models import User


@dataclass(frozen=True, slots=True)
class AccountChange:
    """`user`: the person whose rights or logins changed; his open pages look again."""

    kind: str
    message: str
    actor: User | None
    at: datetime
    user: User | None = None


_listeners: list[Callable[[AccountChange], None]] = []


def listen(listener: Callable[[AccountChange], None]) -> None:
    _listeners.append(listener)


def report(change: AccountChange) -> None:
    for listener in _listeners:
        listener(change)

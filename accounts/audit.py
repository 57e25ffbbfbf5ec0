"""Reports changes to the journal, which this app must not import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from accounts.models import User


@dataclass(frozen=True, slots=True)
class AccountChange:
    """Names in `user` the person whose rights or logins changed; his open pages look again."""

    kind: str
    message: str
    actor: User | None
    at: datetime
    user: User | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)


_listeners: list[Callable[[AccountChange], None]] = []


def listen(listener: Callable[[AccountChange], None]) -> None:
    _listeners.append(listener)


def report(change: AccountChange) -> None:
    for listener in _listeners:
        listener(change)

"""Writes the text of a message, the same for every kind of channel."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.conf import settings

from core.words import plural
from journal.models import Event
from journal.notices.kinds import NoticeKind, rule_of

LINES_MAX: Final = 50
CODE: Final = (
    "Somebody wants EGS to send notices to this address. If it was you, enter this code there: {code}\n\n"
    "If it was not, ignore this message. EGS sends nothing more."
)
TEST: Final = "This is a test of the channel {name}. Nothing has happened."


@dataclass(frozen=True, slots=True)
class Line:
    event: Event
    kind: NoticeKind
    url: str  # empty: this installation does not know its own address

    @classmethod
    def of(cls, event: Event) -> Line | None:
        rule = rule_of(event)
        path = _path_of_alert(event) or (f"/gprs/{event.gpr_id}/" if event.gpr_id else "/notices/")
        return cls(event, rule.kind, f"{settings.EGS_PUBLIC_URL}{path}" if settings.EGS_PUBLIC_URL else "") if rule else None


def _path_of_alert(event: Event) -> str:
    alert = event.data.get("alert")
    portal = "/admin" if event.slice_id is None else ""
    return f"{portal}/alerts/{alert}/" if alert else ""


@dataclass(frozen=True, slots=True)
class Letter:
    """`secrets` and `target` are those of the channel, the newest secret first. `code`: the letter says this and nothing else."""

    id: UUID
    kind: str
    channel: str
    target: str
    secrets: tuple[str, ...]
    lines: tuple[Line, ...]
    is_test: bool
    at: datetime
    code: str = ""

    @property
    def subject(self) -> str:
        if self.is_test:
            return "Confirm your address" if self.code else "Test of a channel"
        return self.lines[0].event.message if len(self.lines) == 1 else plural(len(self.lines), "notice")

    def plain_text(self) -> str:
        if self.code:
            return CODE.format(code=self.code)
        if self.is_test:
            return TEST.format(name=self.channel)
        shown = [f"{line.event.message}\n{line.url}".rstrip() for line in self.lines[:LINES_MAX]]
        left = len(self.lines) - len(shown)
        return "\n\n".join([*shown, *([f"And {left} more."] if left else [])])

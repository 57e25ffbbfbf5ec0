"""Rewords services' errors, which use the API's terms and UTC."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from core.errors import EgsError, IllegalTransition, InvalidInput, NotFound, StaleState
from core.pages import words
from gpr.lifecycle import alternative_to

NOUNS = {"slice": "workspace", "GPR": "GPU request"}
LOOK_AGAIN = "Review its current state and decide again."


@dataclass(frozen=True, slots=True)
class RefusalText:
    title: str
    detail: str


def refusal_of(error: EgsError) -> RefusalText:
    match error:
        case NotFound():
            return RefusalText(error.title, NotFound(NOUNS.get(error.what, error.what)).detail)
        case StaleState():
            return RefusalText(error.title, LOOK_AGAIN)
        case IllegalTransition() if state := error.extra.get("state"):
            return RefusalText(error.title, f"By now its state is “{words.STATE_WORDS[state]}”. {alternative_to(state)}")
        case InvalidInput():
            return RefusalText(error.title, in_zone(" ".join(text for texts in error.extra["errors"].values() for text in texts)))
    return RefusalText(error.title, in_zone(error.detail))


def in_zone(sentence: str) -> str:
    """Converts the moments in a service's sentence to the reader's zone."""
    now, zone = timezone.now(), timezone.get_current_timezone()
    parts = (part if isinstance(part, str) else words.moment(part, now=now, zone=zone) for part in words.moments_in(sentence))
    return "".join(parts)

"""Rewords services' errors, which use the API's terms."""

from __future__ import annotations

from dataclasses import dataclass

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
            return RefusalText(error.title, " ".join(text for texts in error.extra["errors"].values() for text in texts))
    return RefusalText(error.title, error.detail)

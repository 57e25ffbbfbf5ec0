"""What came of an act, said on the page that one is led to after it."""

from __future__ import annotations

from egs.pages.access import PageRequest

TOAST_KEY = "toast"


def toast(request: PageRequest, text: str) -> None:
    request.session[TOAST_KEY] = text


def toast_taken(request: PageRequest) -> str:
    """Once; empty when there is nothing to say."""
    if TOAST_KEY not in request.session:
        return ""
    return str(request.session.pop(TOAST_KEY))

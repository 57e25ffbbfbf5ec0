"""What came of an act: said by the script where there is one, else on the page that one is led to after it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from django.http import HttpResponse, HttpResponseRedirect

from portal_shared.access import PageRequest

TOAST_KEY = "toast"


def done(request: PageRequest, text: str, *, back_url: str, topics: Iterable[str]) -> HttpResponse:
    """A dialog closes, a toast says what came of it, and the fragments of these topics look again."""
    if request.htmx:
        told = {"egs:toast": {"text": text}, **{f"egs:{topic}": None for topic in topics}}
        return HttpResponse(status=204, headers={"HX-Trigger": json.dumps(told)})
    toast(request, text)
    return HttpResponseRedirect(back_url)


def toast(request: PageRequest, text: str) -> None:
    request.session[TOAST_KEY] = text


def toast_taken(request: PageRequest) -> str:
    """Once, for a whole page: a fragment has no place to say it. Empty when there is nothing to say."""
    if request.htmx or TOAST_KEY not in request.session:
        return ""
    return str(request.session.pop(TOAST_KEY))

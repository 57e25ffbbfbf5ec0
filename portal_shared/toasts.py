"""Shows the result of an action, as a toast or on the next page."""

from __future__ import annotations

import json
from collections.abc import Iterable

from django.http import HttpResponse, HttpResponseRedirect

from portal_shared.access import PageRequest

TOAST_KEY = "toast"


def done(request: PageRequest, text: str, *, back_url: str, topics: Iterable[str]) -> HttpResponse:
    """Under htmx it closes the dialog and reloads the fragments of these topics."""
    if request.htmx:
        told = {"egs:toast": {"text": text}, **{f"egs:{topic}": None for topic in topics}}
        return HttpResponse(status=204, headers={"HX-Trigger": json.dumps(told)})
    toast(request, text)
    return HttpResponseRedirect(back_url)


def toast(request: PageRequest, text: str) -> None:
    request.session[TOAST_KEY] = text


def toast_taken(request: PageRequest) -> str:
    if request.htmx or TOAST_KEY not in request.session:
        return ""
    return str(request.session.pop(TOAST_KEY))

"""How every act of an administrator is asked and answered: as a dialog where htmx asks, as a page of its own where there is no script."""

from __future__ import annotations

import json

from django.http import HttpResponse, HttpResponseRedirect

from egs.pages.access import PageRequest
from egs.pages.asking import put_question
from portal_admin.pages.question import Question


def ask(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    return put_question(request, "admin", {"question": question, "shell": question.shell}, status=status)


def done(request: PageRequest, text: str, *, back_url: str, topics: tuple[str, ...]) -> HttpResponse:
    """The dialog closes, a toast says what came of it, and the fragments of these topics look again."""
    if not request.htmx:
        return HttpResponseRedirect(back_url)
    told = {"egs:toast": {"text": text}, **{f"egs:{topic}": None for topic in topics}}
    return HttpResponse(status=204, headers={"HX-Trigger": json.dumps(told)})

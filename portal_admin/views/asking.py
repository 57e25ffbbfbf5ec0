"""How every act of an administrator is asked and answered: as a dialog where htmx asks, as a page of its own where there is no script."""

from __future__ import annotations

import json

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from egs.pages.access import PageRequest
from portal_admin.pages.question import Question

UNPROCESSABLE = 422


def ask(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    """A dialog says itself what was refused: to a browser any 4xx of a fragment is an error for its console."""
    context = {"question": question, "shell": question.shell}
    if request.htmx:
        return render(request, "admin/question_dialog.html", context)
    return render(request, "admin/question.html", context, status=status)


def done(request: PageRequest, text: str, *, back_url: str, topics: tuple[str, ...]) -> HttpResponse:
    """The dialog closes, a toast says what came of it, and the fragments of these topics look again."""
    if not request.htmx:
        return HttpResponseRedirect(back_url)
    told = {"egs:toast": {"text": text}, **{f"egs:{topic}": None for topic in topics}}
    return HttpResponse(status=204, headers={"HX-Trigger": json.dumps(told)})

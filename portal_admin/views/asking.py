"""How every act of an administrator is asked: as a dialog where htmx asks, as a page of its own where there is no script."""

from __future__ import annotations

from django.http import HttpResponse
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

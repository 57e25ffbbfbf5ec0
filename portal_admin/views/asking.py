"""How every act of an administrator is asked: as a dialog where htmx asks, as a page of its own where there is no script."""

from __future__ import annotations

from django.http import HttpResponse, QueryDict

from egs.pages.access import PageRequest
from egs.pages.asking import put_question
from portal_admin.pages.question import Question


def ask(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    return put_question(request, "admin", {"question": question, "shell": question.shell}, status=status)


def sent(request: PageRequest) -> QueryDict | None:
    """What a form is bound to: nothing while it is only asked for."""
    return request.POST if request.method == "POST" else None

"""How an act is asked for: GET puts the question, POST does it; what is refused is asked again with why."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.http import HttpResponse

from egs.errors import EgsError, NotAllowed, NotFound
from egs.pages.access import PageRequest
from egs.pages.asking import put_question
from egs.pages.toasts import done
from portal_user.pages.question import Question


def put(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    return put_question(request, "user", {"question": question, "shell": question.shell, "now": request.now}, status=status)


def decide(request: PageRequest, question: Question, act: Callable[[], str], *, topics: Iterable[str]) -> HttpResponse:
    """`act` says what came of it. Raises NotFound and NotAllowed as it does."""
    if request.method == "GET":
        return put(request, question)
    try:
        text = act()
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        return put(request, question.refused_by(error), status=error.status)
    return done(request, text, back_url=question.back_url, topics=topics)

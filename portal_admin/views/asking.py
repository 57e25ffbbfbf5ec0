"""How every act of an administrator is asked: as a dialog where htmx asks, as a page of its own where there is no script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from django.http import HttpResponse, QueryDict

from egs.errors import EgsError, InvalidInput, NotFound
from egs.pages.access import PageRequest
from egs.pages.asking import UNPROCESSABLE, put_question
from egs.pages.toasts import done
from portal_admin.forms import add_errors
from portal_admin.pages.question import Question


def ask(request: PageRequest, question: Question, *, status: int = 200) -> HttpResponse:
    return put_question(request, "admin", {"question": question, "shell": question.shell}, status=status)


def sent(request: PageRequest) -> QueryDict | None:
    """What a form is bound to: nothing while it is only asked for."""
    return request.POST if request.method == "POST" else None


def decide(
    request: PageRequest, question: Question, do: Callable[..., str], *, topics: Iterable[str], fields: Mapping[str, str] | None = None
) -> HttpResponse:
    """Asked by GET; then `do` is called with what was typed, and says what came of it. What was typed stays while it is refused.

    `fields`: as of `add_errors`. Raises NotFound when what it is about is gone meanwhile.
    """
    form = question.form
    if not form.is_bound:
        return ask(request, question)
    if not form.is_valid():
        return ask(request, question, status=UNPROCESSABLE)
    try:
        told = do(**form.cleaned_data)
    except NotFound:
        raise
    except InvalidInput as error:
        add_errors(form, error, fields)
        return ask(request, question, status=UNPROCESSABLE)
    except EgsError as error:
        return ask(request, question.refused_by(error), status=error.status)
    return done(request, told, back_url=question.back_url, topics=topics)

"""How a question before an act is put, the same in both portals: in a dialog where htmx asks, without script on a page of its own."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from egs.pages.access import PageRequest

# What was typed cannot be.
UNPROCESSABLE = 422


def put_question(request: PageRequest, folder: str, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """`status`: of what was refused, for a page.

    A dialog says itself what was refused, and is what was asked for: 200. To a browser any 4xx of a fragment is an error for its console.
    """
    if request.htmx:
        return render(request, f"{folder}/question_dialog.html", context)
    return render(request, f"{folder}/question.html", context, status=status)

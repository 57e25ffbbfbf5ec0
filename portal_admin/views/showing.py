"""How a page of this portal is shown: whole, or the one part of it that renews itself."""

from __future__ import annotations

from typing import Protocol

from django.http import HttpResponse
from django.shortcuts import render

from portal_shared.access import PageRequest
from portal_shared.shell import Shell


class Page(Protocol):
    @property
    def shell(self) -> Shell: ...


def show(request: PageRequest, page: Page, whole: str, *, status: int = 200, **parts: str) -> HttpResponse:
    """The template `whole`, or of `parts` the one that `?part=` names. All of them read nothing but the page and its shell."""
    template = parts.get(request.GET.get("part", ""), whole)
    return render(request, f"admin/{template}.html", {"page": page, "shell": page.shell}, status=status)

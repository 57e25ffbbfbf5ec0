"""Renders pages and fragments of this portal."""

from __future__ import annotations

from typing import Protocol

from django.http import HttpResponse
from django.shortcuts import render

from portal_shared.access import PageRequest
from portal_shared.shell import Shell


class AdminPage(Protocol):
    @property
    def shell(self) -> Shell: ...


def show(request: PageRequest, page: AdminPage, whole: str, *, status: int = 200, **parts: str) -> HttpResponse:
    """`parts` maps values of `?part=` to templates, which get the page and its shell."""
    template = parts.get(request.GET.get("part", ""), whole)
    return render(request, f"admin/{template}.html", {"page": page, "shell": page.shell}, status=status)

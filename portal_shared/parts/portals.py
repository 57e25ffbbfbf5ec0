"""Says how the portals differ, for pages that both have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from portal_shared.access import PageRequest
from portal_shared.shell import Shell


@dataclass(frozen=True, slots=True)
class Portal:
    """`prefix` begins the names of its addresses, `request_page` is that of the page of a GPR, `name` its folder of templates."""

    name: str
    prefix: str
    request_page: str
    is_admin: bool
    shell_of: Callable[[PageRequest, str], Shell]
    guard: Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]

    def url(self, page: str, *args: object) -> str:
        return reverse(f"{self.prefix}{page}", args=args)

    def request_url(self, gpr_id: UUID | str) -> str:
        return reverse(self.request_page, args=[gpr_id])

    def render(self, request: PageRequest, template: str, *, nav: str, **context: Any) -> HttpResponse:
        """`nav` is the item of the navigation to which the page belongs."""
        return render(request, template, {**context, "shell": self.shell_of(request, nav), "now": request.now})

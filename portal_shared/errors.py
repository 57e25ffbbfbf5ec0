"""Error pages; fragments get an htmx event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts.models import User
from core.clock import db_now
from core.errors import EgsError, NotAllowed, NotFound
from core.rest import problems
from journal.refusals import refusal_record
from portal_shared.access import not_cached
from portal_shared.forms.refusals import refusal_of

API_PREFIX = "/api/"
GetResponse = Callable[[HttpRequest], HttpResponse]


class Refusals:
    """Turns services' errors into pages. The API handles its own."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, EgsError):
            if isinstance(error, NotAllowed) and isinstance(actor := getattr(request, "user", None), User):
                refusal_record(actor=actor, path=request.path, why=error.detail, now=db_now())
            told = refusal_of(error)
            response = refuse(request, error.status, told.title, told.detail)
            for name, value in error.headers.items():
                response[name] = value
            return response
        if isinstance(error, OperationalError | InterfaceError):
            return _unavailable(request)
        return None


def refuse(request: HttpRequest, status: int, title: str, detail: str) -> HttpResponse:
    if getattr(request, "htmx", False):
        # htmx does not swap 4xx: the page stays, and the script shows this event.
        told = json.dumps({"egs:refused": {"title": title, "detail": detail}})
        return not_cached(HttpResponse(status=status, headers={"HX-Trigger": told}))
    return not_cached(render(request, "errors/error.html", {"status": status, "title": title, "detail": detail}, status=status))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_api(request):
        return problems.bad_request(request, exception)
    return refuse(request, 400, "Bad request", "This request is not valid. Go back and try again.")


def forbidden(request: HttpRequest, exception: Exception | None = None, reason: str = "") -> HttpResponse:
    """It answers a failed CSRF check as well."""
    return refuse(request, 403, "Not accepted", "This page was too old or from another site. Reload it and try again.")


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_api(request):
        return problems.page_not_found(request, exception)
    return refuse(request, 404, NotFound.title, "There is no such page, or you may not see it.")


def server_error(request: HttpRequest) -> HttpResponse:
    if _is_api(request):
        return problems.server_error(request)
    detail = "Something went wrong on our side; nothing was changed. Try again, and tell an administrator if it happens again."
    return refuse(request, 500, "Internal error", detail)


def _unavailable(request: HttpRequest) -> HttpResponse:
    response = refuse(request, 503, "Temporarily not available", "The database does not answer. Nothing was changed; try again shortly.")
    response.headers["Retry-After"] = str(problems.RETRY_AFTER_S)
    return response


def _is_api(request: HttpRequest) -> Any:
    return request.path.startswith(API_PREFIX)

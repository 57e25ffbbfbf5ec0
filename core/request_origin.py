"""Remembers the origin of the present request for Events and log lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from uuid import UUID, uuid4

import structlog
from django.http import HttpRequest, HttpResponse

HEADER: Final = "X-Request-Id"
GIVEN: Final = re.compile(r"[A-Za-z0-9._-]{8,36}", re.ASCII)
GetResponse = Callable[[HttpRequest], HttpResponse]


@dataclass(slots=True)
class Origin:
    """`token_key` is the public part of the token, which may have opened the login."""

    request_id: str
    address: str
    token_key: str = ""
    login_id: UUID | None = None


def client_address(request: HttpRequest) -> str:
    """Returns the address of the client, or of its proxy; IPv4 as such. It is empty if there is none, as on a Unix socket."""
    try:
        address = ip_address(request.META.get("REMOTE_ADDR") or "")
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


_origin: ContextVar[Origin | None] = ContextVar("egs_origin", default=None)


def request_origin() -> Origin | None:
    """Returns None outside of a request, such as in ticks."""
    return _origin.get()


def signed_in_by(*, token_key: str = "", login_id: UUID | None = None) -> None:
    if (origin := _origin.get()) is not None:
        origin.token_key, origin.login_id = token_key, login_id


class RequestOrigin:
    """This middleware gives each request an id. A client or a proxy may give the id; the answer, log lines and Events have it."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get(HEADER, "")
        request_id = given if GIVEN.fullmatch(given) else uuid4().hex
        before = _origin.set(Origin(request_id, client_address(request)))
        try:
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                response = self._get_response(request)
        finally:
            _origin.reset(before)
        response.headers[HEADER] = request_id
        return response

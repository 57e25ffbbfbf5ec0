"""Answers HEAD as GET, and starts each request in UTC."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

GetResponse = Callable[[HttpRequest], HttpResponse]


class HeadAsGet:
    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method != "HEAD":
            return self._get_response(request)
        request.method = "GET"
        try:
            return self._get_response(request)
        finally:
            request.method = "HEAD"


class OwnZone:
    """Start each request in UTC, since threads keep the time zone of the last reader."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(None):
            return self._get_response(request)

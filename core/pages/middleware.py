"""What holds for every page, whichever view makes it."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

GetResponse = Callable[[HttpRequest], HttpResponse]


class HeadAsGet:
    """HEAD is GET without the body, which the server leaves out: whatever answers the one answers the other."""

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
    """The zone of one reader is not that of the next whom this thread answers: each request begins in UTC."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(None):
            return self._get_response(request)

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

PREFIX: Final = "/api/v1/"
HEADER: Final = "EGS-Version"


class VersionHeader:
    """By this middleware each answer of the API tells the version of EGS; the API's own is in its address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if request.path.startswith(PREFIX):
            response.headers[HEADER] = settings.EGS_VERSION
        return response

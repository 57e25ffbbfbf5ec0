from __future__ import annotations

from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme


def safe_next(request: HttpRequest, given: str) -> str:
    """Returns no URL of another site."""
    is_ours = url_has_allowed_host_and_scheme(given, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return given if is_ours and given.startswith("/") else "/"

"""Answers errors of the API as RFC 9457 problem documents with a stable `code`."""

from __future__ import annotations

from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from core.errors import EgsError, NotFound

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 5
CONTENT_TYPE = "application/problem+json"
# DRF's code -> ours, where services have a code for the same error.
DETAILS = {
    "not_authenticated": "Send an access token: Authorization: Bearer egsu_...",
    "unsupported_media_type": "Send a JSON object, with Content-Type: application/json.",
}
CODES = {"parse_error": "malformed_json", "permission_denied": "not_allowed"}


def problem(*, status: int, code: str, title: str, detail: str, **extra: Any) -> dict[str, Any]:
    return {"type": "about:blank", "status": status, "code": code, "title": title, "detail": detail, **extra}


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF calls this for exceptions. For unknown errors it returns None: Django logs them and answers 500."""
    if isinstance(error, Http404):
        error = NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, EgsError):
        body = problem(status=error.status, code=error.code, title=error.title, detail=error.detail, **error.extra)
        headers = dict(error.headers)
    elif isinstance(error, exceptions.APIException):
        body, headers = _of_drf(error)
    elif isinstance(error, OperationalError | InterfaceError):
        log.error("database_unavailable", error=str(error))
        detail = "The database does not answer at the moment; nothing was changed. Try again in a few seconds."
        body = problem(status=503, code="unavailable", title="Temporarily not available", detail=detail)
        headers = {"Retry-After": str(RETRY_AFTER_S)}
    else:
        return None
    set_rollback()
    response = Response(body, status=body["status"], headers=headers)
    response.content_type = CONTENT_TYPE
    return response


def problem_response(body: dict[str, Any]) -> JsonResponse:
    """Builds the answer for errors outside of DRF."""
    return JsonResponse(body, status=body["status"], content_type=CONTENT_TYPE)


def page_not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    return problem_response(problem(status=404, code="not_found", title="Not found", detail="There is nothing at this address."))


def bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Answers requests that Django refuses before any view, such as those with a wrong host."""
    return problem_response(problem(status=400, code="bad_request", title="Bad request", detail="This request is not one that we answer."))


def server_error(request: HttpRequest) -> JsonResponse:
    detail = "Something went wrong on our side; nothing was changed. Try again, and tell an administrator if it happens again."
    return problem_response(problem(status=500, code="internal", title="Internal error", detail=detail))


def _of_drf(error: exceptions.APIException) -> tuple[dict[str, Any], dict[str, str]]:
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(error.auth_header)  # type: ignore[attr-defined]
    wait_s: float | None = getattr(error, "wait", None)
    if wait_s is not None:
        headers["Retry-After"] = str(int(wait_s) + 1)
    if isinstance(error, exceptions.ValidationError):
        errors = _sentences(error.detail)
        detail = " ".join(f"{field}: {' '.join(texts)}" for field, texts in errors.items())
        body = problem(status=400, code="invalid_input", title="Some of the input is not valid", detail=detail, errors=errors)
        return body, headers
    code = CODES.get(error.default_code, error.default_code)
    title = str(status_title(error.status_code))
    detail = DETAILS.get(error.default_code, str(error.detail))
    return problem(status=error.status_code, code=code, title=title, detail=detail), headers


def status_title(code: int) -> str:
    titles = {
        status.HTTP_400_BAD_REQUEST: "Bad request",
        status.HTTP_401_UNAUTHORIZED: "Not signed in",
        status.HTTP_403_FORBIDDEN: "You may not do this",
        status.HTTP_404_NOT_FOUND: "Not found",
        status.HTTP_405_METHOD_NOT_ALLOWED: "Not possible here",
        status.HTTP_413_REQUEST_ENTITY_TOO_LARGE: "Too large",
        status.HTTP_415_UNSUPPORTED_MEDIA_TYPE: "Send JSON",
        status.HTTP_429_TOO_MANY_REQUESTS: "Too many requests",
    }
    return titles.get(code, "The request could not be carried out")


def _sentences(detail: Any, prefix: str = "") -> dict[str, list[str]]:
    """Flatten DRF's nested errors into sentences by the path of the field."""
    if isinstance(detail, dict):
        flat: dict[str, list[str]] = {}
        for key, value in detail.items():
            flat |= _sentences(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    items = detail if isinstance(detail, list) else [detail]
    flat = {}
    for index, item in enumerate(items):
        if isinstance(item, dict | list):
            flat |= _sentences(item, f"{prefix}.{index}")
        else:
            flat.setdefault(prefix or "non_field_errors", []).append(str(item))
    return flat

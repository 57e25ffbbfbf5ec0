"""Answers and the schema tell which parts of the API will go, and when (RFC 9745, RFC 8594)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.utils.http import http_date
from rest_framework.response import Response

DOCS: Final = "/api/docs/"


@dataclass(frozen=True, slots=True)
class Deprecation:
    since_at: datetime
    ends_at: datetime  # a year later at least
    instead: str  # a sentence


# By operation, as `gpr.estimate`, by parameter, as `gpr.list?after`, or by field of a body, as `GprCreate.after`.
DEPRECATED: Final[dict[str, Deprecation]] = {}


def operation_key(view: Any) -> str:
    return f"{view.basename}.{view.action}"


def deprecations_of(view: Any, parameters: Iterable[str]) -> list[Deprecation]:
    operation = operation_key(view)
    return _found(operation, *(f"{operation}?{name}" for name in parameters))


def deprecations_in(body: type, names: Iterable[str]) -> list[Deprecation]:
    return _found(*(f"{body.__name__}.{name}" for name in names))


def deprecations_tell(response: Response, found: Iterable[Deprecation]) -> None:
    if found := list(found):
        response["Deprecation"] = f"@{int(min(each.since_at for each in found).timestamp())}"
        response["Sunset"] = http_date(min(each.ends_at for each in found).timestamp())
        response["Link"] = f'<{DOCS}>; rel="deprecation"; type="text/html"'


def mark_deprecated(key: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an operation, a parameter or a field, marked if it is in the table."""
    if (found := DEPRECATED.get(key)) is None:
        return schema
    marked = {"allOf": [schema]} if "$ref" in schema else schema
    told = f"{marked.get('description', '')}\n\nIt ends on {found.ends_at:%Y-%m-%d}. {found.instead}".strip()
    return {**marked, "deprecated": True, "description": told}


def _found(*keys: str) -> list[Deprecation]:
    return [DEPRECATED[key] for key in keys if key in DEPRECATED]

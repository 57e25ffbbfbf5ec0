"""Lets the GET of a list wait until its answer is another than the one that the caller knows.

The view says what it waits for; egs/holding.py waits, without a thread and without a database connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.utils.crypto import salted_hmac
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from core.rest.fields import whole_number
from core.rest.preconditions import DIGEST_CHARS

HELD: Final = "egs.held"  # in the scope of the request
WAIT: Final = "wait_s"
WAIT_MAX_S: Final = 25
PARAMETERS: Final = [
    OpenApiParameter(
        WAIT,
        {"type": "integer", "minimum": 0, "maximum": WAIT_MAX_S, "default": 0},
        description="With `If-None-Match`: the answer waits so long for something new.",
    ),
    OpenApiParameter(
        "If-None-Match",
        {"type": "string"},
        OpenApiParameter.HEADER,
        description="The header `ETag` of the answer that you read. While there is no other, the answer is 304.",
    ),
]
UNCHANGED: Final = OpenApiResponse(description="There is nothing new.")


@dataclass(frozen=True, slots=True)
class Held:
    account: UUID
    topics: Set[str]  # a hint to one of them makes it look
    wait_s: int
    has_news: Callable[[], bool]


def may_be_held(scope: Mapping[str, Any]) -> bool:
    """Tells whether this ASGI request asks to wait."""
    return scope["method"] == "GET" and f"{WAIT}=".encode() in scope["query_string"]


def hold(request: Request, held: Held) -> None:
    """Without a server that waits, as in tests of views, the answer is sent at once."""
    if held.wait_s and (scope := getattr(request, "scope", None)) is not None:
        scope[HELD] = held


def wait_asked_s(request: Request) -> int:
    """Raises ValidationError."""
    try:
        if 0 <= (wait_s := whole_number(request.query_params.get(WAIT, "0"))) <= WAIT_MAX_S:
            return wait_s
    except ValueError:
        pass
    raise ValidationError({WAIT: [f"Must be from 0 to {WAIT_MAX_S}."]})


def known_etags(request: Request) -> set[str]:
    """A proxy that compresses answers marks their ETags as weak."""
    return {etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))}


def etag_of_rows(rows: Iterable[Any]) -> str:
    """Returns an ETag for rows that never change. The secret key hides their numbers."""
    text = ",".join(str(row.pk) for row in rows)
    return f'"{salted_hmac(__name__, text, algorithm="sha256").hexdigest()[:DIGEST_CHARS]}"'

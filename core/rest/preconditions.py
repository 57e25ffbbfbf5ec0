"""Lets a caller change an object only as he has read it (RFC 9110, If-Match)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from json import dumps
from typing import Any, Final

from django.db import transaction
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.viewsets import GenericViewSet

from core.errors import InvalidInput, StaleState

DIGEST_CHARS: Final = 32
IF_MATCH: Final = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": r'^(\*|(W/)?"[^"]*"(, (W/)?"[^"]*")*)$'},
    OpenApiParameter.HEADER,
    description="The header `ETag` of the answer that you read. The object is changed only if nobody has changed it since; otherwise "
    "the answer is 409 `stale_version`.",
)


def takes_if_match(view: Any) -> bool:
    return view.change_body is not None and view.action in {"partial_update", "destroy"}


def etag_of(body: type[serializers.Serializer[Any]], answer: Any) -> str:
    """Return the object's version, or a digest of what a PATCH may change of it; counts and readings do not count."""
    if "version" in answer:
        return f'"{answer["version"]}"'
    values = {name: answer[name] for name in _names(body) if name in answer}
    text = dumps(values, cls=JSONEncoder, sort_keys=True)
    return f'"{sha256(text.encode()).hexdigest()[:DIGEST_CHARS]}"'


@cache
def _names(body: type[serializers.Serializer[Any]]) -> tuple[str, ...]:
    return tuple(body().fields)


@transaction.atomic
def change_if_unchanged(
    view: GenericViewSet[Any],
    body: type[serializers.Serializer[Any]],
    handler: Callable[..., Response],
    request: Request,
    *args: Any,
    **kwargs: Any,
) -> Response:
    """Raises StaleState, or InvalidInput for a header that holds no ETag."""
    _lock_row(view, view.retrieve(request, *args, **kwargs).data)  # type: ignore[attr-defined]
    refuse_stale(request, etag_of(body, view.retrieve(request, *args, **kwargs).data))  # type: ignore[attr-defined]
    return handler(request, *args, **kwargs)


def refuse_stale(request: Request, present: str) -> None:
    """Raises StaleState, or InvalidInput for a header that holds no ETag."""
    wanted = parse_etags(request.headers.get("If-Match", "*").strip())
    if not wanted:
        raise InvalidInput({"If-Match": ['Send the ETag that you read, in its quotes, as "1".']})
    if wanted != ["*"] and present not in wanted:
        raise StaleState("Somebody has changed it since you read it. Read it again, then send your change with the new ETag.")


def _lock_row(view: GenericViewSet[Any], answer: Any) -> None:
    """Lock the object's row, so that nobody else changes it before this request is done."""
    rows = view.get_queryset().model.objects.select_for_update(no_key=True, of=("self",))
    list(rows.filter(pk=answer.get("id")).values_list("pk"))

"""Parses JSON strictly: it limits size and depth, and takes UTF-8 and no duplicate keys."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser

DEPTH_MAX = 32


class BodyTooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "body_too_large"

    def __init__(self) -> None:
        super().__init__(f"The body is larger than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes. Send less.")


class StrictJsonParser(BaseParser):
    """It does not extend DRF's parser, which limits neither size nor depth."""

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        limit: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raw: bytes = stream.read(limit + 1)
        if len(raw) > limit:
            raise BodyTooLarge
        if not raw:
            return {}  # as for a request without a body
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise ParseError("The body is not UTF-8.") from None
        return json_strict(text)


def json_strict(text: str) -> Any:
    """Raises ParseError for anything that the database could not store."""
    try:
        data = json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unique)
    except RecursionError:
        raise ParseError(f"The JSON is nested deeper than {DEPTH_MAX} levels.") from None
    except ValueError as error:
        raise ParseError(f"The body is not JSON: {error}"[:200]) from None
    _check(data)
    return data


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)  # of two values with one key, one would be lost
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _check(data: Any) -> None:
    """It loops instead of recursing, because the depth is not trusted."""
    level = [data]
    for _ in range(DEPTH_MAX + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str) and not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                raise ParseError("A string holds a lone surrogate, which is no text.")
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return
        level = below
    raise ParseError(f"The JSON is nested deeper than {DEPTH_MAX} levels.")

"""Serializes objects within the objects of a response."""

from __future__ import annotations

from typing import Any, Final

from rest_framework.serializers import BaseSerializer

_made: Final[dict[Any, BaseSerializer[Any]]] = {}


def nested(kind: type[BaseSerializer[Any]], value: Any) -> Any:
    """Returns the data of `value`; None for None. All rows share one serializer."""
    if value is None:
        return None
    if kind not in _made:
        _made[kind] = kind()
    return _made[kind].to_representation(value)

"""Objects within the objects of a response."""

from __future__ import annotations

from functools import cache
from typing import Any

from rest_framework.serializers import BaseSerializer


def nested(kind: type[BaseSerializer[Any]], value: Any) -> Any:
    """The data of `value`; None for None. All rows share one serializer, because a new one copies all of its fields."""
    return None if value is None else _serializer(kind).to_representation(value)


@cache
def _serializer(kind: Any) -> BaseSerializer[Any]:
    made: BaseSerializer[Any] = kind()
    return made

"""Says in an Event's data what a change changed, for the audit log. Give it nothing secret: whoever may see the Event reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import Model

from core.rest.output import utc_text

TEXT_MAX_CHARS: Final = 200


def values_of(row: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that differ, for the `data` of an Event."""
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return {"before": {name: _plain(before.get(name)) for name in names}, "after": {name: _plain(after.get(name)) for name in names}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Model):
        return str(value.pk)  # not every reader of the Event may know its name
    text = utc_text(value) if isinstance(value, datetime) else str(value)
    return text if len(text) <= TEXT_MAX_CHARS else f"{text[:TEXT_MAX_CHARS]}…"

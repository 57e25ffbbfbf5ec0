"""Finds values in manifests that the API cannot take whatever there is in EGS: text for a number, a word that is
no choice, a number or a text beyond its bounds, a name of another form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from egs_client.cli.acts.commands import kind_at
from egs_client.cli.acts.fields import kinds_of, texts_of
from egs_client.manifests.documents import NO_SPAN, Wanted
from egs_client.manifests.faults import Fault, nearest
from egs_client.manifests.kinds import Field, Kind
from egs_client.manifests.text import quoted
from egs_client.sync.api import Api

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", datetime: "a time as 2026-11-27T10:00:00Z"}
MANY = {list: "a list", Sequence: "a list", dict: "a mapping", Mapping: "a mapping"}


def type_faults(wanted: Iterable[Wanted]) -> Iterator[Fault]:
    for each in wanted:
        types, texts = _declared(each.kind)
        given = {**each.values, **({each.kind.name_field: each.name} if each.kind.name_field else {})}
        for api, value in given.items():
            if value is None or api not in types or not (detail := _misfit(api, value, kinds_of(types[api]), texts.get(api, ""))):
                continue
            yield each.fault("invalid_input", detail, each.path_of(api))


def _declared(kind: Kind) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns types and help of what the SDK's methods that make and change such an object take, by the API's name of the field."""
    path = ".".join(part.replace("-", "_") for part in kind.path.split("/") if part and not part.startswith("{"))
    resource = kind_at(Api, path)
    methods = [method for name in ("create", "update") if (method := getattr(resource, name, None))]
    types = {name: hint for method in methods for name, hint in get_type_hints(method, include_extras=True).items()}
    return types, {name: text for method in methods for name, text in texts_of(method.__doc__ or "").items()}


def _misfit(api: str, value: Any, kinds: Sequence[Any], help_text: str) -> str:
    """Returns why the object fits none of the kinds, or ""."""
    if datetime in kinds and isinstance(value, str):
        return "" if _is_moment(value) else f"Must be {WORDS[datetime]}."
    if any(_fits(value, kind) for kind in kinds):
        return ""
    if meta := next((meta for kind in kinds for meta in getattr(kind, "__metadata__", ()) if _fits(value, kind.__origin__)), None):
        return _beyond(value, meta, help_text, unit=" s" if Field(api).is_span else "")
    if Field(api).is_span:
        return NO_SPAN
    kinds = [getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind for kind in kinds]
    choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices and isinstance(value, str):
        known = nearest(value, choices) or f" There are {', '.join(filter(None, choices))}."
        return f"There is no {value[:60]} here.{known}"
    words = dict.fromkeys(MANY.get(get_origin(kind)) or WORDS.get(str if choices else kind, "another value") for kind in kinds)
    return f"Must be {' or '.join(words)}.{quoted(value) if str in kinds or choices else ''}"


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _beyond(value: Any, meta: msgspec.Meta, help_text: str, *, unit: str) -> str:
    """Says it as the server does."""
    if meta.ge is not None and value < meta.ge:
        return f"Must be {meta.ge}{unit} at least."
    if meta.le is not None and value > meta.le:
        return f"Must be {meta.le}{unit} at most."
    if meta.pattern is not None:
        return help_text or "Has another form than this field takes."
    what = "characters" if isinstance(value, str) else "items"
    if meta.max_length is not None and len(value) > meta.max_length:
        return f"Must have {meta.max_length} {what} at most."
    return "Must not be empty."

"""Finds values in manifests that the API cannot take whatever there is in EGS: text for a number, a word that is no choice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from egs_client.cli.acts.commands import kind_at
from egs_client.cli.acts.fields import kinds_of
from egs_client.manifests.documents import NO_SPAN, Wanted
from egs_client.manifests.faults import Fault, nearest
from egs_client.manifests.kinds import Field, Kind
from egs_client.manifests.text import quoted
from egs_client.sync.api import Api

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", datetime: "a time as 2026-11-27T10:00:00Z"}
MANY = {list: "a list", Sequence: "a list", dict: "a mapping", Mapping: "a mapping"}


def type_faults(wanted: Iterable[Wanted]) -> Iterator[Fault]:
    for each in wanted:
        types = _types(each.kind)
        for api, value in each.values.items():
            if value is None or api not in types or not (detail := _misfit(value, kinds_of(types[api]))):
                continue
            yield each.fault("invalid_input", NO_SPAN if Field(api).is_span else detail, each.paths[api])


def _types(kind: Kind) -> dict[str, Any]:
    """Returns the types that the SDK's methods that make and change such an object take, by the API's name of the field."""
    path = ".".join(part.replace("-", "_") for part in kind.path.split("/") if part and not part.startswith("{"))
    resource = kind_at(Api, path)
    methods = (getattr(resource, name, None) for name in ("create", "update"))
    return {name: hint for method in methods if method for name, hint in get_type_hints(method).items()}


def _misfit(value: Any, kinds: Sequence[Any]) -> str:
    """Empty: it fits one of the kinds."""
    for kind in kinds:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
        else:
            return ""
    choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices and isinstance(value, str):
        known = nearest(value, choices) or f" There are {', '.join(filter(None, choices))}."
        return f"There is no {value[:60]} here.{known}"
    words = dict.fromkeys(MANY.get(get_origin(kind)) or WORDS.get(str if choices else kind, "another value") for kind in kinds)
    return f"Must be {' or '.join(words)}.{quoted(value) if str in kinds or choices else ''}"

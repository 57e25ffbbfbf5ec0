"""Makes options of a terminal from the fields of an operation of the SDK."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from egs_client.cli.exits import Refused

NOTHING = "none"


def kinds_of(kind: Any) -> list[Any]:
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return [each for each in parts if each not in (type(None), msgspec.UnsetType)]


def option_kind(kind: Any) -> tuple[Any, str]:
    """Returns the type of the option, and what its help says of it."""
    kinds = kinds_of(kind)
    note = f"Write `{NOTHING}` to clear it." if type(None) in get_args(kind) else ""
    choices = [str(choice) for each in kinds if get_origin(each) is Literal for choice in get_args(each) if choice]
    if choices:
        return str, f"One of {', '.join(choices)}. {note}".strip()
    first = kinds[0]
    if get_origin(first) is Sequence or get_origin(first) is list:
        return list[str], "May be repeated."
    if get_origin(first) is Mapping or get_origin(first) is dict:
        return list[str], "NAME=VALUE; may be repeated."
    if first in (int, float, bool) and len(kinds) == 1 and not note:
        return first, ""
    return str, note


def value_of(given: Any, kind: Any, field: str) -> Any:
    """Returns the value as the API takes it. Raises Refused."""
    kinds = kinds_of(kind)
    if isinstance(given, list) and get_origin(kinds[0]) in (Mapping, dict):
        pairs = dict(text.split("=", 1) for text in given if "=" in text)
        if len(pairs) != len(given):
            raise Refused(f"--{field}: write name=value.")
        return {name: _number(text) for name, text in pairs.items()}
    if given == NOTHING and type(None) in get_args(kind):
        return None
    if isinstance(given, str) and not {str, Any} & set(kinds) and datetime not in kinds and get_origin(kinds[0]) is not Literal:
        return _number(given)
    return given


def _number(text: str) -> Any:
    """Returns the text itself if it is neither a number nor true or false."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, int | float) else text


def texts_of(doc: str) -> dict[str, str]:
    """Returns the help of each field by its name; that of the operation under an empty one."""
    found, name = {"": ""}, ""
    for line in inspect.cleandoc(doc).splitlines():
        field, colon, text = line.partition(": ")
        if colon and field.isidentifier():
            name, found[field] = field, text
        else:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found

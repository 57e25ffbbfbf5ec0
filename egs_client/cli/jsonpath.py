"""kubectl's JSONPath as far as people use it: `{.items[*].name}`, `{range .items[*]}{.name}{"\\n"}{end}`, `{.a['b']}`."""

from __future__ import annotations

import json
import re
from typing import Any

from egs_client.cli.exits import Refused

_PART = re.compile(r"{([^{}]*)}|([^{}]+)")
_STEP = re.compile(r"\.([\w-]+)|\[(\*|-?\d+)\]|\['([^']+)'\]")


def jsonpath(template: str, value: Any) -> str:
    """Raises Refused for a template that is none."""
    parts = [(found[1] is not None, found[1] or found[2]) for found in _PART.finditer(template)]
    if "".join(f"{{{text}}}" if is_path else text for is_path, text in parts) != template:
        raise Refused(f"This is no JSONPath: {template}")
    return _rendered(parts, value)


def _rendered(parts: list[tuple[bool, str]], value: Any) -> str:
    shown, at = "", 0
    while at < len(parts):
        is_path, text = parts[at]
        if is_path and text.startswith("range "):
            end = _end_of(parts, at)
            shown += "".join(_rendered(parts[at + 1 : end], each) for each in _found(text.removeprefix("range "), value))
            at = end
        elif is_path and text.startswith('"'):
            shown += _quoted(text)
        elif is_path:
            shown += " ".join(_text(each) for each in _found(text, value))
        else:
            shown += text.replace("\\n", "\n").replace("\\t", "\t")
        at += 1
    return shown


def _quoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise Refused(f"This is no text of JSONPath: {text}") from None


def _end_of(parts: list[tuple[bool, str]], begin: int) -> int:
    depth = 0
    for at in range(begin, len(parts)):
        is_path, text = parts[at]
        depth += is_path and text.startswith("range ")
        depth -= is_path and text == "end"
        if depth == 0:
            return at
    raise Refused("A {range} of the JSONPath has no {end}.")


def _found(path: str, value: Any) -> list[Any]:
    path = path.strip().removeprefix("$").removeprefix("@")
    path = path if path.startswith((".", "[")) or not path else f".{path}"
    steps = list(_STEP.finditer(path)) if path != "." else []
    if path != "." and "".join(step[0] for step in steps) != path:
        raise Refused(f"This is no JSONPath: {path}")
    found = [value]
    for step in steps:
        found = [each for inner in found for each in _step(inner, step[1] or step[3], step[2])]
    return found


def _step(value: Any, name: str | None, index: str | None) -> list[Any]:
    if name is not None:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return list(value.values()) if isinstance(value, dict) and index == "*" else []
    if index == "*":
        return value
    at = int(index or 0)
    return [value[at]] if -len(value) <= at < len(value) else []


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)

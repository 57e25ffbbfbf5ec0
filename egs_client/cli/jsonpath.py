"""kubectl's JSONPath as far as people use it: `{.items[*].name}`, `{range .items[*]}{.name}{"\\n"}{end}`, `{.a['b']}`,
`{.items[0:2].name}`, `{.items[?(@.state=="QUEUED")].name}`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from egs_client.cli.exits import Refused

_PART = re.compile(r"{([^{}]*)}|([^{}]+)")
_NAME, _TEXT = r"(?:\.[\w-]+)+", r"\"[^\"]*\"|'[^']*'|-?\d+(?:\.\d+)?|true|false|null"
_STEP = re.compile(
    rf"\.(?P<name>[\w-]+)|\['(?P<quoted>[^']+)'\]|\[(?P<index>-?\d+)\]|(?P<all>\.?\[\*\]|\.\*)|\[(?P<begin>-?\d*):(?P<end>-?\d*)\]"
    rf"|\[\?\(\s*@(?P<field>{_NAME})\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<text>{_TEXT})\s*)?\)\]"
)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


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
        found = [each for inner in found for each in _step(inner, step)]
    return found


def _step(value: Any, step: re.Match[str]) -> list[Any]:
    if name := step["name"] or step["quoted"]:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return list(value.values()) if isinstance(value, dict) and step["all"] else []
    if step["field"]:
        return [each for each in value if _is_wanted(each, step)]
    if step["index"]:
        at = int(step["index"])
        return [value[at]] if -len(value) <= at < len(value) else []
    return value if step["all"] else value[int(step["begin"] or 0) : int(step["end"]) if step["end"] else None]


def _is_wanted(each: Any, step: re.Match[str]) -> bool:
    found = _found(step["field"], each)
    if not step["sign"]:
        return bool(found)
    text = step["text"]
    wanted = text[1:-1] if text[0] in "\"'" else json.loads(text)
    try:
        return bool(found) and _SIGNS[step["sign"]](found[0], wanted)
    except TypeError:  # a text is neither more nor less than a number
        return False


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)

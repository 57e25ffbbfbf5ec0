"""Shows any answer of the API to a person."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec

from egs_client.cli.output import Column, as_data, show_list, show_one

CELLS = 6


def show(answer: Any, output: str, *, kind: str) -> None:
    if answer is None:
        print("Done.")
    elif isinstance(answer, str):
        print(answer, end="")
    elif isinstance(answer, list):
        fields = [field.name for field in msgspec.structs.fields(answer[0])] if answer else []
        first = [name for name in fields if name != "id" and not name.endswith("_id")]
        columns = [_column(name, is_wide=at >= CELLS) for at, name in enumerate([*first, "id"]) if name in fields]
        show_list(answer, columns, output=output, kind=kind, none="There is none.")
    else:
        lines = [(name, _block(value)) for name, value in as_data(answer).items() if not name.endswith("_id")]
        show_one(answer, lines, output=output, kind=kind)


def _column(name: str, *, is_wide: bool) -> Column[Any]:
    return Column(name.upper(), lambda row: cell(getattr(row, name)), is_wide=is_wide)


def _block(value: Any) -> str:
    """Returns a value with a line for each thing in it; what is empty is left out."""
    if isinstance(value, dict):
        return "\n".join(f"{_words(name)}: {_inline(each)}" for name, each in value.items() if not _is_empty(each)) or "-"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "\n".join(map(_inline, value))
    return cell(value)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_words(name)} {_inline(each)}" for name, each in value.items() if not (_is_empty(each) or name.endswith("id")))
    return ", ".join(map(_inline, value)) if isinstance(value, list) else cell(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _is_empty(value: Any) -> bool:
    return value in (None, "", [], {}) or (isinstance(value, dict) and value.get("count") == 0)


def cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M}"
    if value is None or value == []:
        return "-"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(as_data(value), ensure_ascii=False)

"""Prints objects as -o says."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import typer

from egs_client.cli import early
from egs_client.cli.exits import Refused
from egs_client.cli.words import without_spans

T = TypeVar("T")
KINDS = ("table", "wide", "json", "yaml", "name", "jsonpath=TEMPLATE")
LEAST_CHARS = 8
LOOK_S = 2.0

COLORS = {
    "ACTIVE": "32",
    "PROVISIONING": "34",
    "EXITING": "35",
    "PENDING_APPROVAL": "33",
    "FAILED": "31",
    "EVICTED": "33",
    "REJECTED": "31",
}


def _checked(value: str) -> str:
    if value.split("=", maxsplit=1)[0] not in {kind.split("=")[0] for kind in KINDS} or (value.startswith("jsonpath") and "=" not in value):
        raise typer.BadParameter(f"one of {', '.join(KINDS)}")
    return value


Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help=f"One of {', '.join(KINDS)}.",
        callback=_checked,
        autocompletion=lambda: [kind.removesuffix("TEMPLATE") for kind in KINDS],
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep watching, and print each row again when it changes.")]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    title: str
    text: Callable[[T], str]
    is_wide: bool = False


def has_colors() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, code: str | None) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code and has_colors() else text


def as_data(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def show_list(rows: Sequence[T], columns: Sequence[Column[T]], *, output: str, kind: str, none: str) -> None:
    """`none` is the sentence where there is no row."""
    if output in {"table", "wide"}:
        if rows:
            _print_table(rows, columns, is_wide=output == "wide")
        else:
            print(none, file=sys.stderr)
    elif output == "name":
        for row in rows:
            print(name_of(row, kind))
    else:
        _print_data({"items": as_data(list(rows))}, output)


def show_one(value: Any, lines: Sequence[tuple[str, str]], *, output: str, kind: str) -> None:
    """`lines` are what a person reads: labels and texts."""
    if output in {"table", "wide"}:
        width = max(len(label) for label, _ in lines) + 1
        for label, text in lines:
            first, *others = (text or "-").split("\n")
            print(f"{label + ':':<{width}} {first}")
            for other in others:
                print(f"{'':<{width}} {other}")
    elif output == "name":
        print(name_of(value, kind))
    else:
        _print_data(as_data(value), output)


def show_watching(
    read: Callable[[], Sequence[T]], columns: Sequence[Column[T]], *, output: str, kind: str, key: Callable[[T], str]
) -> None:
    """Prints the list, then for ever each row again when its text changes in more than a span of time."""
    early.over()
    shown: dict[str, tuple[str, ...]] = {}
    columns = [column for column in columns if output == "wide" or not column.is_wide]
    while True:
        rows = read()
        texts = {key(row): tuple(without_spans(column.text(row)) for column in columns) for row in rows}
        news = [row for row in rows if shown.get(key(row)) != texts[key(row)]]
        if output in {"table", "wide"} and news:
            _print_table(news, columns, is_wide=True, has_titles=not shown)
        elif news:
            show_list(news, columns, output=output, kind=kind, none="")
        shown = texts
        sys.stdout.flush()
        time.sleep(LOOK_S)


def show_stream(rows: Iterable[T], columns: Sequence[Column[T]], *, output: str, kind: str) -> None:
    """Each as it comes, on one line; JSON, too."""
    early.over()
    columns = [column for column in columns if output == "wide" or not column.is_wide]
    for row in rows:
        if output in {"table", "wide"}:
            print("  ".join(column.text(row) for column in columns))
        elif output == "json":
            print(json.dumps(as_data(row), ensure_ascii=False))
        elif output == "name":
            print(name_of(row, kind))
        else:
            _print_data(as_data(row), output)
        sys.stdout.flush()


def name_of(value: Any, kind: str) -> str:
    return f"{kind}/{getattr(value, 'id', None) or value.name}"


def _print_table(rows: Sequence[T], columns: Sequence[Column[T]], *, is_wide: bool, has_titles: bool = True) -> None:
    columns = [column for column in columns if is_wide or not column.is_wide]
    lines = [[column.text(row) or "-" for column in columns] for row in rows]
    if has_titles:
        lines.insert(0, [column.title for column in columns])
    widths = _fitted([max(len(line[at]) for line in lines) for at in range(len(columns))], is_wide=is_wide)
    for number, line in enumerate(lines):
        cells = [_cut(text, width).ljust(width) for text, width in zip(line, widths, strict=True)]
        is_title = has_titles and number == 0
        print("  ".join(painted(cell, "1" if is_title else COLORS.get(cell.strip())) for cell in cells).rstrip())


def _fitted(widths: list[int], *, is_wide: bool) -> list[int]:
    """Narrow the columns until the table fits the terminal. A pipe gets full columns."""
    if is_wide or not sys.stdout.isatty():
        return widths
    most = shutil.get_terminal_size((80, 24)).columns
    while sum(widths) + 2 * (len(widths) - 1) > most and max(widths) > LEAST_CHARS:
        widths[widths.index(max(widths))] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _print_data(value: Any, output: str) -> None:
    if output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif output == "yaml":
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")
    elif output.startswith("jsonpath="):
        from egs_client.cli.jsonpath import jsonpath

        print(jsonpath(output.removeprefix("jsonpath="), value))
    else:
        raise Refused(f"-o {output} is not one of {', '.join(KINDS)}.")

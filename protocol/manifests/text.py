"""Reads and writes the YAML of manifests: it takes the plain part alone, and keeps the line of each value.

Aliases, tags and merges are refused, and so are plain words that one YAML parser reads as text and another as a number or a flag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import yaml
from yaml.resolver import Resolver

from protocol.manifests.faults import Fault

DEPTH_MAX: Final = 32
DOCUMENTS_MAX: Final = 1_000
ECHO_MAX_CHARS: Final = 60
NO_TEXT: Final = "A character here is no text, such as a control character."
# The parser of libyaml, where PyYAML has it, takes a tenth of the time.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARKER: Final = re.compile(r"---(?:[ \t]|\r?$)")
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})\Z", re.ASCII)
_FRACTION: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})\.[0-9]{1,40}(?:[eE][-+][0-9]{1,2})?\Z", re.ASCII)
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_PLAIN: Final = Resolver()
_TAG: Final = "tag:yaml.org,2002:"
# A plain word that YAML 1.1 reads as text or as a time is text here.
_TEXT_TAGS: Final = {f"{_TAG}str", f"{_TAG}timestamp"}
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Holds as `lines` the line of each key and item, by path. `blocks`: path of each text behind `|` -> the line where it begins."""

    file: str
    line: int
    data: Any
    lines: Mapping[Path, int]
    blocks: Mapping[Path, int] = field(default_factory=dict)

    def line_of(self, path: Path) -> int:
        """Returns the line of the value, or of what holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)


def documents_read(file: str, text: str) -> tuple[list[Document], list[Fault]]:
    """Each document is read by itself, so that a mistake in one hides none in another."""
    documents: list[Document] = []
    faults: list[Fault] = []
    for first_line, part in _parts(text.removeprefix("\ufeff")):
        if len(documents) == DOCUMENTS_MAX:
            faults.append(Fault(file, first_line, "", "too_many", f"There may be {DOCUMENTS_MAX} documents in one file. Split it."))
            break
        reader = _Reader(file, first_line, part)
        documents += reader.read()
        faults += reader.faults
    return documents, faults


def _parts(text: str) -> Iterable[tuple[int, str]]:
    lines = text.split("\n")
    starts = [0, *(index for index, line in enumerate(lines) if index and _MARKER.match(line)), len(lines)]
    for start, end in pairwise(starts):
        yield start + 1, "\n".join(lines[start:end])


@dataclass(slots=True)
class _Open:
    """Holds a list or a mapping that is not read to its end yet."""

    value: dict[str, Any] | list[Any]
    path: Path
    key: str | None = None

    def place(self) -> Path:
        return (*self.path, len(self.value) if isinstance(self.value, list) else str(self.key))


@dataclass(slots=True)
class _Reader:
    file: str
    first_line: int
    text: str
    faults: list[Fault] = field(default_factory=list)
    _lines: dict[Path, int] = field(default_factory=dict)
    _blocks: dict[Path, int] = field(default_factory=dict)

    def read(self) -> list[Document]:
        try:
            return list(self._documents())
        except yaml.YAMLError as error:
            self._fault(*self._syntax(error))
        except _Unreadable as error:
            self._fault(error.line, error.code, error.detail, error.path)
        return []

    def _documents(self) -> Iterable[Document]:
        stack: list[_Open] = []
        first_line, root = 0, None
        events: Iterable[Any] = yaml.parse(self.text, Loader=LOADER)
        for event in events:
            line = event.start_mark.line + self.first_line
            if isinstance(event, yaml.DocumentStartEvent):
                self._lines, self._blocks, first_line, root = {}, {}, 0, None
                if event.version or event.tags:
                    raise _Unreadable(line, "directive", "A manifest takes no line that begins with %. Leave it out.")
            elif isinstance(event, yaml.DocumentEndEvent):
                if root is not None:
                    yield Document(self.file, first_line, root, self._lines, self._blocks)
            elif isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
            elif isinstance(event, yaml.NodeEvent):
                first_line = first_line or line
                value = self._node(event, stack, line)
                root = value if root is None else root

    def _node(self, event: Any, stack: list[_Open], line: int) -> Any:
        top = stack[-1] if stack else None
        is_key = top is not None and isinstance(top.value, dict) and top.key is None
        path = () if top is None else top.path if is_key else top.place()
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise _Unreadable(line, "alias", "A manifest takes no anchors (&) and no aliases (*). Write the value out.", path)
        if event.tag is not None:
            raise _Unreadable(line, "tag", f"A manifest takes no YAML tags as {event.tag[:ECHO_MAX_CHARS]}. Leave it out.", path)
        if isinstance(event, yaml.ScalarEvent) and "\x00" in event.value:  # written as an escape
            raise _Unreadable(line, "malformed_yaml", NO_TEXT, path)
        if top is not None and is_key:
            self._key(event, top, line)
            return None
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path, line)
            if event.style == "|":
                self._blocks[path] = line + 1
        if top is not None:
            self._lines.setdefault(path, line)
            if isinstance(top.value, list):
                top.value.append(value)
            else:
                top.value[str(top.key)], top.key = value, None
        if isinstance(event, yaml.CollectionStartEvent):
            if len(stack) == DEPTH_MAX:
                raise _Unreadable(line, "too_deep", f"This is nested deeper than {DEPTH_MAX} levels.", path[:8])
            stack.append(_Open(value, path))
        return value

    def _key(self, event: Any, top: _Open, line: int) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise _Unreadable(line, "malformed_yaml", "The name of a field must be text.", top.path)
        if event.value == "<<" and event.implicit[0]:
            raise _Unreadable(line, "alias", "A manifest takes no merges (<<). Write the fields out.", top.path)
        top.key = event.value
        path = top.place()
        if top.key in top.value:
            first = self._lines[path]
            self._fault(line, "duplicate_key", f"{_echo(event.value)} stands here twice, first on line {first}. Keep one.", path)
        self._lines.setdefault(path, line)

    def _scalar(self, event: Any, path: Path, line: int) -> Any:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text in _FLAGS:
            return _FLAGS[text]
        if _WHOLE.match(text):
            return int(text)
        if _FRACTION.match(text):
            return float(text)
        tag = _PLAIN.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        if tag == f"{_TAG}null":
            return None
        if tag not in _TEXT_TAGS:
            what = {"bool": "true or false", "int": "a number", "float": "a number"}.get(tag.removeprefix(_TAG), "something else")
            better = "true or false, or" if tag.endswith("bool") else "the number with its digits alone, or"
            detail = f"Some readers of YAML take {_echo(text)} for {what}, others for text. Write {better} quote the text."
            self._fault(line, "ambiguous", detail, path)
        return text

    def _fault(self, line: int, code: str, detail: str, path: Path = ()) -> None:
        self.faults.append(Fault(self.file, line, field_name(path), code, detail))

    def _syntax(self, error: yaml.YAMLError) -> tuple[int, str, str]:
        lines = self.text.rstrip().split("\n")
        mark, begin = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
        if begin is not None and (mark is None or mark.line >= len(lines)):
            mark = begin  # what lacks its end is found where the text ends
        if mark is not None:
            index = min(mark.line, len(lines) - 1)
            if lines[index].lstrip(" ").startswith("\t"):
                return index + self.first_line, "tab", "A tab indents this line. Indent with spaces."
            problem = " ".join(filter(None, [getattr(error, "problem", ""), getattr(error, "context", "")]))
            return index + self.first_line, "malformed_yaml", f"This is not YAML: {problem}."
        index = self.text.encode(errors="replace")[: getattr(error, "position", 0)].count(b"\n")
        return index + self.first_line, "malformed_yaml", NO_TEXT


class _Unreadable(Exception):
    def __init__(self, line: int, code: str, detail: str, path: Path = ()) -> None:
        super().__init__(detail)
        self.line, self.code, self.detail, self.path = line, code, detail, path


def field_name(path: Path) -> str:
    """Returns e.g. `spec.clusters[0]`."""
    return "".join(f"[{each}]" if isinstance(each, int) else f".{_echo(each)}" for each in path).lstrip(".")


def _echo(text: str) -> str:
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= ECHO_MAX_CHARS else f"{shown[:ECHO_MAX_CHARS]}…"


def quoted(value: Any) -> str:
    """Says how a number or a flag becomes text; nothing for other values."""
    return f' Write it in quotes: "{json.dumps(value)}".' if isinstance(value, bool | int | float) else ""


def documents_write(documents: Iterable[Mapping[str, Any]]) -> str:
    """The same documents give the same bytes."""
    return "---\n".join(
        yaml.safe_dump(each, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1_000_000) for each in documents
    )

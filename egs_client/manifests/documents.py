# `make client` writes this file. Do not edit it.
"""Turns documents into what they want of which object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from egs_client.manifests.faults import Fault, nearest
from egs_client.manifests.kinds import API_VERSION, BY_NAME, Field, Kind, manifest_name, no_such_kind, span_parse
from egs_client.manifests.text import Document, Path, field_name
from egs_client.manifests.workloads import objects_read

TOP: Final = ("apiVersion", "kind", "metadata", "spec")
LABEL_MAX_CHARS: Final = 63
LABELS_MAX: Final = 32
SECRET_FROM: Final = "secretFrom"  # noqa: S105 - a name of a field
NO_SPAN: Final = "Must be a duration as 8h30m, 2d or 90s."
NAMESPACE: Final = "kubectl reads the namespace, EGS does not: write spec.workspace instead."


@dataclass(frozen=True, slots=True)
class Wanted:
    """Holds `values` by the API's names. `secret_from`: the name under which the request brings the secret."""

    document: Document
    kind: Kind
    name: str
    values: Mapping[str, Any]
    labels: Mapping[str, str]
    secret_from: str = ""
    paths: Mapping[str, Path] = field(default_factory=dict)

    @property
    def line(self) -> int:
        return self.document.line

    def fault(self, code: str, detail: str, path: Path = ()) -> Fault:
        line = self.document.line_of(path) if path else self.line
        return Fault(self.document.file, line, field_name(path), code, detail, self.kind.name, self.name)

    def path_of(self, api: str, *rest: str) -> Path:
        """Returns the document's path of the field that the API calls `api`."""
        if api == self.kind.name_field:
            return ("metadata", "name")
        base = self.paths.get(api, ())
        return (*base, *(int(each) if each.isdecimal() else each for each in rest)) if base else ()


class _Checker:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.kind: Kind | None = None
        self.name = ""
        self.faults: list[Fault] = []

    def fault(self, path: Path, code: str, detail: str) -> None:
        line, kind = self.document.line_of(path), self.kind.name if self.kind else ""
        self.faults.append(Fault(self.document.file, line, field_name(path), code, detail, kind, self.name))

    def wanted(self) -> Wanted | None:
        data = self.document.data
        if not isinstance(data, dict):
            self.fault((), "no_object", "A manifest is a mapping that begins with apiVersion and kind.")
            return None
        self.kind = self._kind(data)
        self._known((), data, TOP)
        name, labels = self._metadata(data)
        if self.kind is None:
            return None
        values, secret_from, paths = self._spec(self.kind, data)
        return Wanted(self.document, self.kind, name, values, labels, secret_from, paths)

    def _kind(self, data: Mapping[str, Any]) -> Kind | None:
        version = data.get("apiVersion")
        if version != API_VERSION:
            self.fault(("apiVersion",), "unknown_version", f"Write apiVersion: {API_VERSION}.")
        word = data.get("kind")
        if isinstance(word, str) and word in BY_NAME:
            return BY_NAME[word]
        self.fault(("kind",), "unknown_kind", no_such_kind(word) if isinstance(word, str) else f"Write kind: {', '.join(BY_NAME)}.")
        return None

    def _known(self, path: Path, data: Mapping[str, Any], known: Iterable[str]) -> None:
        names = list(known)
        for key in data:
            if key not in names:
                which = nearest(key, names) or (f" There are {', '.join(names)}." if names else " It has none.")
                self.fault((*path, key), "unknown_field", f"There is no such field here.{which}")

    def _mapping(self, data: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
        value = data.get(str(path[-1]))
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(path, "invalid_input", "Must be a mapping.")
            return {}
        return value

    def _metadata(self, data: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        metadata = self._mapping(data, ("metadata",))
        if "namespace" in metadata:
            self.fault(("metadata", "namespace"), "unknown_field", NAMESPACE)
        self._known(("metadata",), {key: 0 for key in metadata if key != "namespace"}, ("name", "labels"))
        self.name = metadata["name"] if isinstance(metadata.get("name"), str) else ""
        if "name" in metadata and not self.name:
            self.fault(("metadata", "name"), "invalid_input", "Must be text. Quote what looks like a number.")
        elif self.kind is not None and self.kind.name_field and not self.name:
            self.fault(("metadata",), "invalid_input", f"A {self.kind.name} needs metadata.name.")
        return self.name, self._labels(metadata)

    def _labels(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        labels = self._mapping(metadata, ("metadata", "labels")) if "labels" in metadata else {}
        if len(labels) > LABELS_MAX:
            self.fault(("metadata", "labels"), "invalid_input", f"There may be {LABELS_MAX} labels.")
        for key, value in labels.items():
            if not isinstance(value, str) or not value.isprintable() or max(len(value), len(key)) > LABEL_MAX_CHARS:
                self.fault(("metadata", "labels", key), "invalid_input", f"Must be text of {LABEL_MAX_CHARS} characters at most.")
        return dict(labels)

    def _spec(self, kind: Kind, data: Mapping[str, Any]) -> tuple[dict[str, Any], str, dict[str, Path]]:
        spec = self._mapping(data, ("spec",))
        has_secret = "secret" in kind.named
        names = [name for name in kind.named if name != "secret"] + ([SECRET_FROM] if has_secret else [])
        terms = BY_NAME["Policy"].named if kind.name == "Workspace" else {}
        for name in (each for each in spec if each in terms and each not in names):
            self.fault(("spec", name), "unknown_field", "A Policy with spec.workspace says this.")
        self._known(("spec",), {name: 0 for name in spec if name not in terms or name in names}, names)
        values: dict[str, Any] = {}
        paths: dict[str, Path] = {}
        for name, value in spec.items():
            if name in names and name != SECRET_FROM:
                wish = kind.named[name]
                values[wish.api] = self._value(wish, value)
                paths[wish.api] = ("spec", name)
        for name in kind.needed:
            if name not in spec:
                self.fault(("spec",), "invalid_input", f"A {kind.name} needs spec.{name}.")
        secret_from = spec.get(SECRET_FROM, "") if has_secret else ""
        if not isinstance(secret_from, str):
            self.fault(("spec", SECRET_FROM), "invalid_input", "Must be the name of a secret that you give when you apply.")
        if secret_from:
            paths["secret"] = ("spec", SECRET_FROM)
        return values, str(secret_from), paths

    def _value(self, wish: Field, value: Any) -> Any:
        if wish.is_span and isinstance(value, str):
            try:
                return span_parse(value)
            except ValueError:
                self.fault(("spec", wish.name), "invalid_input", NO_SPAN)
        elif self.kind is not None and not isinstance(value, bool) and any(name == wish.api for name, _ in self.kind.acts):
            self.fault(("spec", wish.name), "invalid_input", "Must be true or false.")
        elif wish.is_yaml and isinstance(value, str):
            self.faults += self._objects(("spec", wish.name), value)
        elif wish.is_set and wish.of and isinstance(value, list):
            for index in (index for index, name in enumerate(value) if not isinstance(name, str)):
                self.fault(("spec", wish.name, index), "invalid_input", f"Must be the name of a {wish.of}.")
        elif wish.of and not (isinstance(value, str) or value is None):
            self.fault(("spec", wish.name), "invalid_input", f"Must be the name of a {wish.of}.")
        return value

    def _objects(self, path: Path, text: str) -> Iterator[Fault]:
        """A text behind `|` gives each fault its own line. Any other text gives all its faults the line where the text begins."""
        kind, line = self.kind.name if self.kind else "", self.document.line_of(path)
        begins = self.document.blocks.get(path)
        for fault in objects_read(self.document.file, text)[1]:
            own = field_name((*path, fault.field)) if fault.field else field_name(path)
            at = line if begins is None else begins + fault.line - 1
            yield replace(fault, line=at, field=own, kind=kind, name=self.name)


def documents_check(documents: Sequence[Document]) -> tuple[list[Wanted], list[Fault]]:
    """Says what is wrong with documents whatever there is in EGS."""
    wanted, faults = [], []
    for document in documents:
        checker = _Checker(document)
        found = checker.wanted()
        faults += checker.faults
        if found is not None and not checker.faults:
            wanted.append(found)
    return wanted, [*faults, *_repeated(wanted)]


def _repeated(wanted: Sequence[Wanted]) -> Iterator[Fault]:
    first: dict[Any, Wanted] = {}
    for each in wanted:
        key = (each.kind.name, *(repr(value) for value in identity(each.kind, each.name, each.values)))
        other = first.setdefault(key, each)
        if other is not each:
            where = f"{other.document.file}, line {other.line}"
            yield each.fault("duplicate_object", f"The same {each.kind.name} stands in {where}. Keep one.", ("metadata", "name"))


def identity(kind: Kind, name: str, values: Mapping[str, Any]) -> list[Any]:
    """Returns the values that identify an object of its kind; a time in one form."""
    own = [name] if kind.name_field else []
    return own + [instant(values.get(key)) if key.endswith("_at") else values.get(key) or None for key in kind.keys]


def instant(value: Any) -> Any:
    """Writes each moment in one form; other values stay as they are."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    return at.astimezone(UTC).isoformat() if at is not None and at.tzinfo is not None else value


def translated(kind: Kind, text: str) -> str:
    """Returns the API's names of fields in a sentence, as manifests call them."""
    for each in kind.fields:
        if each.api != each.name and "_" in each.api:
            text = text.replace(each.api, manifest_name(each.api))
    return text

"""Reads objects through the API, in the form in which manifests speak of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from core.rest.references import id_of
from manifests.rest import CallRefused, Rest
from protocol.manifests.documents import identity, instant
from protocol.manifests.kinds import BY_NAME, Field, Kind, span_text
from protocol.manifests.text import documents_read, documents_write
from slices.models import Life

NOT_FOUND: Final = "not_found"
OPEN: Final = Life.OPEN.value
REPEATED: Final = "range"  # a budget of another period shows the dates of the present one


@dataclass(frozen=True, slots=True)
class Present:
    """Holds an object as it is. `values`: by the API's names; `base`: the address of its list."""

    kind: Kind
    base: str
    id: str
    name: str
    values: Mapping[str, Any]
    row: Mapping[str, Any]

    @property
    def key(self) -> str:
        return key_of(self.kind, self.name, self.values)


def key_of(kind: Kind, name: str, values: Mapping[str, Any]) -> str:
    return json.dumps(identity(kind, name, values))


@dataclass(slots=True)
class Objects:
    rest: Rest
    _lists: dict[str, dict[str, list[Present]]] = field(default_factory=dict)
    _open: dict[str, dict[str, None]] = field(default_factory=dict)
    _found: dict[tuple[str, str], Present | None] = field(default_factory=dict)

    def find(self, kind: Kind, name: str, values: Mapping[str, Any]) -> list[Present]:
        """More than one: the name is not unique."""
        if kind.is_found_by_name:
            found = self._by_name(kind, name, values) or self._asked(kind, name, values)
            return [] if found is None else [found]
        return [self.whole(each) for each in self._list(kind, values).get(key_of(kind, name, values), [])]

    def is_there(self, kind: Kind, name: str) -> bool:
        """Tell whether the caller may see a project, a workspace or a cluster of this name."""
        return self._by_name(kind, name, {}) is not None

    def open(self, kind: Kind) -> Collection[str]:
        """Returns the names of the projects or workspaces that take something."""
        if kind.name not in self._open:
            self._open[kind.name] = {each.name: None for each in self.listed(kind, {}) if each.row["life"] == OPEN}
        return self._open[kind.name]

    def listed(self, kind: Kind, values: Mapping[str, Any]) -> Iterator[Present]:
        query = {name: str(values[name]) for name in kind.query if values.get(name)}
        query |= {name: value[1:] for name, value in kind.query.items() if value.startswith("=")}
        for row in self.rest.listed(path_of(kind, values), query):
            yield self.present(kind, row, values)

    def forget(self, changed: Kind | None = None) -> None:
        """Forgets what a change may have changed: no project, workspace or cluster if the object is of another kind."""
        kept = {"Project", "Workspace", "Cluster"} - {changed.name} if changed is not None else set()
        self._found = {key: found for key, found in self._found.items() if key[0] in kept and found is not None}
        self._lists.clear()

    def present(self, kind: Kind, row: Mapping[str, Any], scope: Mapping[str, Any], base: str = "") -> Present:
        """`scope`: what the path of the list says."""
        values = {each.api: _read(row, each.reads or each.api) for each in kind.fields}
        values |= {each.api: values[each.api] or None for each in kind.fields if each.is_yaml}
        values |= {name: scope[name] for name in kind.keys if f"{{{name}}}" in kind.path}
        if (trim := TRIMS.get(kind.name)) is not None:
            values = trim(values, self)
        name = str(row.get("name", "")).removeprefix(kind.name_prefix.format(**values))
        return Present(kind, base or path_of(kind, values), str(row["id"]), name, values, row)

    def whole(self, present: Present) -> Present:
        """Reads what its list leaves out."""
        if not present.kind.joins:
            return present
        row = {**self.rest.get(present.kind.joins.format(**present.row)), **present.row}
        return self.present(present.kind, row, present.values, present.base)

    def cluster_names(self) -> dict[str, str]:
        return {each.id: each.name for rows in self._list(BY_NAME["Cluster"], {}).values() for each in rows}

    def _by_name(self, kind: Kind, name: str, values: Mapping[str, Any]) -> Present | None:
        path = f"{path_of(kind, values)}{name}/"
        if (kind.name, path) not in self._found:
            self._found[kind.name, path] = self._retrieved(kind, path, name, values)
        return self._found[kind.name, path]

    def _retrieved(self, kind: Kind, path: str, name: str, values: Mapping[str, Any]) -> Present | None:
        if not is_segment(name):
            return None
        try:
            row = self.rest.get(path)
        except CallRefused as refused:
            if refused.code == NOT_FOUND:
                return None
            raise
        return self.present(kind, row, values) if row["name"] == name else None  # manifests name objects, never by their ids

    def _asked(self, kind: Kind, name: str, values: Mapping[str, Any]) -> Present | None:
        if not kind.also:
            return None
        base = kind.also.format(**values)
        try:
            rows = [row for row in self.rest.listed(base) if row["name"] == name]
        except CallRefused:
            return None  # only who manages the workspace may see them
        return self.present(kind, rows[0], values, base) if rows else None

    def _list(self, kind: Kind, values: Mapping[str, Any]) -> dict[str, list[Present]]:
        where = repr((kind.name, path_of(kind, values), [values.get(name) for name in kind.query]))
        if where not in self._lists:
            found: dict[str, list[Present]] = defaultdict(list)
            for each in self.listed(kind, values):
                found[each.key].append(each)
            self._lists[where] = found
        return self._lists[where]


def path_of(kind: Kind, values: Mapping[str, Any]) -> str:
    """Callers have made sure that what the path names is there."""
    return kind.path.format(**{name: values.get(name) for name in kind.keys})


def is_segment(name: str) -> bool:
    """Tell whether it can be a part of an address: no name of an object has other characters."""
    return bool(name) and name.isprintable() and not set("/?#%").intersection(name)


def _read(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def is_same(wish: Field, wanted: Any, present: Any) -> bool:
    if wanted in (None, "") or present in (None, ""):
        return (wanted in (None, "")) and (present in (None, ""))
    if isinstance(wanted, bool) or isinstance(present, bool):
        return wanted is present
    if wish.is_set and isinstance(wanted, list) and isinstance(present, list):
        return {str(each) for each in wanted} == {str(each) for each in present}
    if wish.is_yaml and isinstance(wanted, str):
        return bool([document.data for document in documents_read("", wanted)[0]] == present)
    if wish.api.endswith("_at"):
        return bool(instant(wanted) == instant(present))
    return bool((wanted.strip() if isinstance(wanted, str) else wanted) == present)


def shown(wish: Field, value: Any) -> Any:
    """Returns a value as manifests write it."""
    if wish.is_span and isinstance(value, int) and not isinstance(value, bool):
        return span_text(value)
    if wish.is_yaml and isinstance(value, list):
        return documents_write(value)
    return sorted(value, key=str) if wish.is_set and isinstance(value, list) else value


Trim = Callable[[dict[str, Any], Objects], dict[str, Any]]


def _maintenance(values: dict[str, Any], objects: Objects) -> dict[str, Any]:
    return {**values, "cluster": None} if values["node"] else values


def _budget(values: dict[str, Any], objects: Objects) -> dict[str, Any]:
    return values if values["period"] == REPEATED else {**values, "starts_at": None, "ends_at": None}


def _owned(values: dict[str, Any], objects: Objects) -> dict[str, Any]:
    """The API shows the project of a workspace's object, too; a manifest leaves it out."""
    return {**values, "project": None} if values["slice"] else values


def _channel(values: dict[str, Any], objects: Objects) -> dict[str, Any]:
    return {**values, "target": None} if values["kind"] == "slack_webhook" else values


def _series(values: dict[str, Any], objects: Objects) -> dict[str, Any]:
    names = objects.cluster_names() if values["clusters"] else {}
    return {**values, "clusters": [names.get(str(id_of(each)), each) for each in values["clusters"] or []]}


TRIMS: Final[Mapping[str, Trim]] = {
    "Maintenance": _maintenance,
    "Quota": _owned,
    "Budget": lambda values, objects: _owned(_budget(values, objects), objects),
    "Channel": _channel,
    "BookingSeries": _series,
}

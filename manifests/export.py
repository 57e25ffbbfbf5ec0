"""Writes what there is as manifests. The same objects give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.utils.dateparse import parse_datetime
from rest_framework.request import Request

from manifests.models import ManifestObject
from manifests.objects import Objects, Present, shown
from manifests.rest import CallRefused, Rest
from protocol.manifests.documents import SECRET_FROM
from protocol.manifests.kinds import API_VERSION, BY_NAME, KINDS, Kind
from protocol.manifests.text import documents_write

# Kinds of channels whose secret EGS cannot make itself.
WITH_SECRET: Final = ("slack_webhook", "slack_bot")
PARENTS: Final = {"slice": "Workspace", "project": "Project"}


def manifests_export(*, request: Request, kinds: Sequence[Kind], name: str, workspace: str, now: datetime) -> str:
    """Empty filters take everything that the caller may see."""
    objects = Objects(Rest(request))
    labels = {(row.kind, row.key): row.labels for row in ManifestObject.objects.exclude(labels={})}
    chosen = [kind for kind in KINDS if (kind in kinds if kinds else kind.is_setup)]
    found = [each for kind in chosen for each in _exported(objects, kind, workspace, now) if not name or each.name == name]
    of_jobs = {each.row["gpr_id"] for each in found if each.kind.name == "GPUJob"}  # filed together, so written together
    return documents_write(_document(each, labels.get((each.kind.name, each.key), {})) for each in found if each.id not in of_jobs)


def _exported(objects: Objects, kind: Kind, workspace: str, now: datetime) -> list[Present]:
    try:
        rows = [each for scope in _scopes(objects, kind, workspace) for each in objects.listed(kind, scope)]
    except CallRefused as refused:
        if refused.code == "not_allowed":  # a list for administrators
            return []
        raise
    rows = [row for row in rows if _is_of_open(objects, row)]
    if workspace:
        rows = [row for row in rows if workspace in (row.values.get("slice"), row.name if kind.name == "Workspace" else None)]
    return sorted((objects.whole(row) for row in rows if _is_exported(row, now)), key=lambda row: row.key)


def _scopes(objects: Objects, kind: Kind, workspace: str) -> Iterator[Mapping[str, Any]]:
    """Returns the filters for lists of the kind; it reads those of a workspace or a project for each."""
    parent = next((name for name in PARENTS if f"{{{name}}}" in kind.path), None)
    if parent is None:
        yield {"slice": workspace}
    elif parent == "slice" and workspace:
        if objects.is_there(BY_NAME["Workspace"], workspace):
            yield {"slice": workspace}
    else:
        for name in objects.open(BY_NAME[PARENTS[parent]]):
            yield {parent: name}


def _is_of_open(objects: Objects, row: Present) -> bool:
    """Tell whether its workspace or project is open: others take nothing any more."""
    return all(str(row.values[name]) in objects.open(BY_NAME[kind]) for name, kind in PARENTS.items() if row.values.get(name))


def _is_exported(each: Present, now: datetime) -> bool:
    if not all(each.row.get(name) in values for name, values in each.kind.exported_if.items()):
        return False
    if each.kind.name == "Channel" and not each.values.get("slice"):
        return False  # one's own
    ahead = each.kind.exported_while_ahead
    at = parse_datetime(str(each.values[ahead])) if ahead else None
    return at is None or at > now


def _document(each: Present, labels: Mapping[str, str]) -> dict[str, Any]:
    kind = each.kind
    metadata: dict[str, Any] = {"name": each.name} if kind.name_field else {}
    if labels:
        metadata["labels"] = dict(sorted(labels.items()))
    spec = {wish.name: shown(wish, each.values.get(wish.api)) for wish in kind.fields if each.values.get(wish.api) not in (None, "")}
    if each.values.get("kind") in WITH_SECRET and "secret" in kind.named:
        spec[SECRET_FROM] = f"{each.values['slice']}-{each.name}"
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind.name}
    if metadata:
        made["metadata"] = metadata
    return {**made, "spec": spec} if spec else made

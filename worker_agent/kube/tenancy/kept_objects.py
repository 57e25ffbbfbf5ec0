"""Applies the objects of EGS in namespaces of workspaces where they differ, and deletes them.

Must not live here: which objects a workspace needs.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

import msgspec

from protocol.cluster_names import SAID
from worker_agent.cluster.base import ClusterError, Note, Unavailable, WriteConflict
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.tenancy.contents import AppliedObject, NamespaceContents, ObjectKey, TenancyObject
from worker_agent.kube.tenancy.survey import KINDS, Survey, path_of


class KeptObjects:
    """One thread uses it."""

    def __init__(self, api: Api, *, survey: Survey, note: Note) -> None:
        self._api, self._survey, self._note = api, survey, note
        self.written: dict[ObjectKey, AppliedObject] = {}

    def keep(self, place: ObjectKey, wanted: dict[str, Any], contents: NamespaceContents, *, about: str = "") -> None:
        """Writes only what is not as the agent left it. `about`: the namespace to report, where it is another."""
        there, written = contents.objects.get(place), self.written.get(place)
        if written is not None and written.is_unchanged(there, wanted):
            return
        if not contents.repairs and self._is_changed(place, wanted, there, written):
            contents.add_left(KINDS[place[0]][1], about or place[1])
            return
        left = self._api.apply(path_of(place), with_digest(wanted), TenancyObject)
        if written is not None and written.wanted == wanted and (there is None or there.content != left.content):
            contents.add_repaired(KINDS[place[0]][1], about or place[1])
        self.written[place] = AppliedObject.of(wanted, left)

    def _is_changed(self, place: ObjectKey, wanted: dict[str, Any], there: TenancyObject | None, written: AppliedObject | None) -> bool:
        # An object that the agent applies for the first time was not changed by others.
        is_said = written is not None and written.wanted == wanted
        if there is None:
            return is_said
        if not is_said and there.metadata.annotation(SAID) != with_digest(wanted)["metadata"]["annotations"][SAID]:
            return False
        try:
            return self._api.apply(path_of(place), with_digest(wanted), TenancyObject, dryRun="All").content != there.content
        except WriteConflict:  # the role of a RoleBinding cannot be changed
            return True

    def try_remove(self, place: ObjectKey, contents: NamespaceContents) -> bool:
        try:
            self.remove(place, contents)
        except ClusterError as error:
            self._note("tenancy_delete_failed", {"object": "/".join(place), "why": str(error)})
            return False
        return True

    def remove(self, place: ObjectKey, contents: NamespaceContents) -> None:
        """Deletes the object. Raises ClusterError unless it is gone afterwards."""
        self.delete(place, contents)
        for left in self._survey.named(place):
            # A RoleBinding that a finalizer holds still gives its rights.
            ops = [{"op": "test", "path": "/metadata/uid", "value": left.metadata.uid}, {"op": "remove", "path": "/metadata/finalizers"}]
            self._api.patch(path_of(place), ops, TenancyObject)
        if self._survey.named(place):
            raise Unavailable(f"{'/'.join(place)} is still there")

    def delete(self, place: ObjectKey, contents: NamespaceContents) -> None:
        with suppress(Missing):
            self._api.delete(path_of(place))
        contents.objects.pop(place, None)
        self.written.pop(place, None)

    def forget(self, namespace: str) -> None:
        self.written = {place: written for place, written in self.written.items() if place[1] != namespace}


def with_digest(wanted: dict[str, Any]) -> dict[str, Any]:
    """Adds a digest, which shows after a restart whether others changed the object."""
    digest = hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()[:16]
    return {**wanted, "metadata": {**wanted["metadata"], "annotations": {SAID: digest}}}

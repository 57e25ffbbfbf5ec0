"""Applies and deletes manifests."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeVar

from django.db import transaction
from django.db.models import Q
from rest_framework.request import Request

from accounts.authentication import actor_of
from accounts.models import Scope
from accounts.permissions import has_scope
from accounts.policy import Verb, is_platform_admin, may
from core.errors import EgsError
from core.locks import in_turn, transaction_lock
from gpr.allocation.stored_plan import plan_lock, plan_turn
from manifests.faults import Faulty, only, refuse_fixed, telling
from manifests.models import ManifestObject
from manifests.objects import NOT_FOUND, OPEN, Objects, Present, is_same, key_of, path_of, shown
from manifests.rest import CallRefused, Rest
from protocol.manifests.documents import SECRET_FROM, Wanted, documents_check
from protocol.manifests.faults import Fault, told_first
from protocol.manifests.kinds import BY_NAME, ORDER, At, Change, Field, manifest_name
from protocol.manifests.text import Document, documents_read
from slices.models import Slice

LOCK: Final = "manifests"
LABELS: Final = "metadata.labels"
# Deleting these plans the queue.
LOCKING: Final = ("GPRTemplate", "BookingSeries", "GPUProvisioningRequest", "GPUJob")
# The endpoint of each kind whose objects end: an object that has ended can only be filed again under another name.
FILED: Final = {"GPUProvisioningRequest": "gprs", "GPUJob": "jobs"}
# Each of them plans the queue, and nobody else is planned for until the last one is done.
PLANNED_MAX: Final = 50
WAITING: Final = ("QUEUED", "PENDING_APPROVAL")
T = TypeVar("T")


class ManifestsInvalid(EgsError):
    """`faults` has all mistakes. Nothing was changed."""

    code = "invalid_manifests"
    title = "The manifests were not applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """`is_partial`: what can be applied is. `prune`: labels of objects that go when no document names them."""

    manager: str
    is_forced: bool = False
    is_dry: bool = False
    is_partial: bool = False
    prune: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Result:
    kind: str
    name: str
    place: str  # the workspace, project or cluster that it belongs to
    act: str
    file: str = ""
    line: int = 0
    changes: Sequence[Difference] = ()
    note: str = ""
    signing_secret: str | None = None


@dataclass(slots=True)
class Report:
    results: list[Result] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def manifests_apply(*, request: Request, files: Mapping[str, str], terms: Terms) -> Report:
    """Raises ManifestsInvalid where a document is wrong, unless the terms are partial or dry; nothing is changed then."""
    return _in_one(terms, _Application(request, files, terms).apply)


def manifests_delete(*, request: Request, files: Mapping[str, str], terms: Terms) -> Report:
    """Deletes what the documents name. Raises as `manifests_apply`."""
    return _in_one(terms, _Application(request, files, terms).delete)


def _in_one(terms: Terms, act: Callable[[], Report]) -> Report:
    with in_turn(LOCK), plan_turn(), transaction.atomic():
        transaction_lock(LOCK)
        report = act()
        is_refused = bool(report.faults) and not terms.is_partial and not terms.is_dry
        if terms.is_dry or is_refused:
            transaction.set_rollback(True)
    count = len(report.faults)
    report.faults = told_first(report.faults)
    if is_refused:
        detail = f"{report.faults[0].detail}" if count == 1 else f"There are {count} mistakes."
        raise ManifestsInvalid(f"{detail} Nothing was changed.", faults=[_told(fault) for fault in report.faults])
    return report


def _told(fault: Fault) -> dict[str, Any]:
    return {name: getattr(fault, name) for name in ("file", "line", "field", "kind", "name", "code", "detail")}


class _Application:
    def __init__(self, request: Request, files: Mapping[str, str], terms: Terms) -> None:
        self.request, self.terms = request, terms
        self.rest = Rest(request)
        self.objects = Objects(self.rest)
        self.report = Report()
        self._broken: set[tuple[str, str]] = set()  # what later documents name must not be told as absent
        self._archived: set[tuple[str, Any]] = set()  # what this call archives
        self._along: dict[tuple[str, Any], list[Q]] = defaultdict(list)  # rows that go with what is archived
        self._wanted = self._read(files)  # before any lock is held: nobody waits for a long text
        self._kept = {(each.kind.name, key_of(each.kind, each.name, each.values)) for each in self._wanted}

    def apply(self) -> Report:
        wanted = self._wanted
        going = self._prunable() if self.terms.prune else []
        # Nobody is planned for while this holds the lock, so a folder that is applied each minute takes it only for a change.
        planned = [each for each in wanted if each.kind.plans and self._would_change(each)]
        if len(planned) > PLANNED_MAX:
            text = f"One call files or changes {PLANNED_MAX} requests and booking series at most. Apply the others by another call."
            self.report.faults.append(planned[PLANNED_MAX].fault("too_many", text))
            return self.report
        if planned or any(each.kind.name in LOCKING for each in going):
            plan_lock()
        for _, group in groupby(wanted, key=lambda each: ORDER[each.kind.name]):
            self._each(list(group), self._apply)
        if not self.report.faults:
            self._note_archived(going)
            for _, group in groupby(going, key=lambda each: each.kind.name):
                self._each(list(group), self._delete)
        return self.report

    def delete(self) -> Report:
        if any(each.kind.name in LOCKING for each in self._wanted):
            plan_lock()
        self._note_archived(self._wanted)
        for _, group in groupby(reversed(self._wanted), key=lambda each: ORDER[each.kind.name]):
            self._each(list(group), self._delete)
        return self.report

    def _read(self, files: Mapping[str, str]) -> list[Wanted]:
        documents: list[Document] = []
        for name, text in files.items():
            found, faults = documents_read(name, text)
            documents += found
            self.report.faults += faults
        faulty: dict[str, list[int]] = defaultdict(list)
        for fault in sorted(self.report.faults, key=lambda fault: fault.line):
            faulty[fault.file].append(fault.line)
        wanted, faults = documents_check(documents)
        self.report.faults += faults
        self._broken |= {(fault.kind, fault.name) for fault in faults}
        torn = {id(each) for each in wanted if _holds(each.document, faulty[each.document.file])}
        self._broken |= {(each.kind.name, each.name) for each in wanted if id(each) in torn}
        return sorted((each for each in wanted if id(each) not in torn), key=lambda each: ORDER[each.kind.name])

    def _each(self, wanted: Sequence[Wanted], act: Callable[[Wanted], Result]) -> None:
        """Tries a refused document again after the others of its kind, since a quota may need room that another gives back."""
        left, faults = list(wanted), {}
        done: dict[int, Result] = {}
        while left:
            refused = []
            for each in left:
                try:
                    with transaction.atomic():
                        done[id(each)] = act(each)
                except Faulty as faulty:
                    self.objects.forget()
                    faults[id(each)] = faulty.faults
                    refused.append(each)
            if len(refused) == len(left) or not any(faults[id(each)] for each in refused):
                break
            left = refused
        self.report.results += [done[id(each)] for each in wanted if id(each) in done]
        for each in wanted:
            if id(each) in done:
                self._broken.discard((each.kind.name, each.name))
            else:
                self._broken.add((each.kind.name, each.name))
                self.report.faults += faults[id(each)]

    # One document.

    def _apply(self, wanted: Wanted) -> Result:
        kind = wanted.kind
        self._look_up_references(wanted)
        with telling(wanted):
            found = self.objects.find(kind, wanted.name, wanted.values)
        present = only(wanted, found)
        row = ManifestObject.objects.filter(kind=kind.name, key=key_of(kind, wanted.name, wanted.values)).first()
        if present is None and row is not None and (ended := self._ended(wanted, row)):
            return self._result(wanted, "unchanged", note=ended)
        if present is not None and (life := present.row.get("life", OPEN)) != OPEN:
            return self._result(wanted, "unchanged", note=f"It is {life}, so none of its fields changes.")
        labels, owners = _kept_of(row, present)
        different = _different(wanted, present)
        is_relabeled = dict(wanted.labels) != labels
        if present is not None and not self.terms.is_forced:
            self._refuse_conflicts(wanted, different, labels if is_relabeled else None, owners)
        may_keep = present is None or self._may_keep(wanted, present)
        if is_relabeled and not may_keep:
            raise Faulty([wanted.fault("not_allowed", "You may see this object, but not label it.", ("metadata", "labels"))])
        made: Mapping[str, Any] = {}
        if present is None:
            act, (present, made) = "created", self._create(wanted)
        elif different:
            act, present = "changed", self._change(wanted, present, different)
        else:
            act = "changed" if is_relabeled else "unchanged"
        taken = {wish.api for wish, _, _ in different} | ({LABELS} if is_relabeled else set())
        if may_keep or different:  # the API has judged a difference
            self._own(wanted, present, owners, taken)
        changes = [Difference(f"spec.{wish.name}", shown(wish, old), shown(wish, new)) for wish, old, new in different]
        changes += [Difference(LABELS, labels, dict(wanted.labels))] if is_relabeled else []
        secret = None if self.terms.is_dry else made.get("signing_secret")
        return self._result(wanted, act, changes=changes, signing_secret=secret)

    def _look_up_references(self, wanted: Wanted) -> None:
        faults = []
        for wish in wanted.kind.fields:
            value = wanted.values.get(wish.api)
            kind = BY_NAME.get(wish.of)
            if kind is None or not kind.is_found_by_name:
                continue
            for index, name in enumerate(value if isinstance(value, list) else [value] if value else []):
                if (kind.name, name) in self._broken:
                    raise Faulty([])  # the mistake there is told
                if not isinstance(name, str) or not self.objects.is_there(kind, name):
                    path = wanted.path_of(wish.api, *([str(index)] if isinstance(value, list) else []))
                    faults.append(wanted.fault(NOT_FOUND, f"There is no such {kind.name.lower()}, or you may not see it.", path))
        lacking = [each for each in wanted.kind.keys if f"{{{each}}}" in wanted.kind.path and not wanted.values.get(each)]
        names = [manifest_name(each) for each in lacking]
        faults += [wanted.fault("invalid_input", f"Write spec.{name}.", ("spec", name)) for name in names]
        if faults:
            raise Faulty(faults)

    def _ended(self, wanted: Wanted, row: ManifestObject) -> str:
        """A request that has ended is not filed again, or a folder of manifests would do so for ever."""
        if wanted.kind.name not in FILED:
            return ""
        try:
            ended = self.rest.get(f"{FILED[wanted.kind.name]}/{row.object_id}/")
        except CallRefused:
            return ""
        return f"It has ended: {ended['state']}. Another name files it again."

    def _refuse_conflicts(
        self,
        wanted: Wanted,
        different: Iterable[tuple[Field, Any, Any]],
        labels: Mapping[str, str] | None,
        owners: Mapping[str, str],
    ) -> None:
        """`labels`: those that would change, or None."""
        changed = [(wish.api, wanted.path_of(wish.api), shown(wish, old), shown(wish, new)) for wish, old, new in different]
        changed += [] if labels is None else [(LABELS, ("metadata", "labels"), labels, wanted.labels)]
        others = [each for each in changed if owners.get(each[0], self.terms.manager) != self.terms.manager]
        faults = [
            wanted.fault(
                "conflict",
                f"{owners[name]} wrote {json.dumps(old)} here, you write {json.dumps(new)}. Agree with it, or force yours.",
                path,
            )
            for name, path, old, new in others
        ]
        if faults:
            raise Faulty(faults)

    def _create(self, wanted: Wanted) -> tuple[Present, Mapping[str, Any]]:
        kind = wanted.kind
        if kind.is_given:
            raise Faulty([wanted.fault(NOT_FOUND, f"There is no such {kind.name.lower()}, or you may not see it.")])
        body = self._body(wanted, {wish.api for wish in kind.fields if wish.at != At.CHANGE})
        if wanted.secret_from:
            if wanted.secret_from not in self.terms.secrets:
                text = f"EGS has no such channel yet: give the secret {wanted.secret_from} when you apply."
                raise Faulty([wanted.fault("secret_missing", text, ("spec", SECRET_FROM))])
            body["secret"] = self.terms.secrets[wanted.secret_from]
        with telling(wanted):
            made = self.rest.post(path_of(kind, wanted.values), body)
        self.objects.forget(kind)
        present = self.objects.present(kind, made, wanted.values)
        if later := [each for each in _different(wanted, present) if each[0].at != At.CREATE and each[0].api not in body]:
            present = self._change(wanted, present, later)
        return present, made

    def _body(self, wanted: Wanted, names: set[str]) -> dict[str, Any]:
        body = {name: value for name, value in wanted.values.items() if name in names and value is not None}
        body = {name: value for name, value in body.items() if f"{{{name}}}" not in wanted.kind.path}
        return {**body, wanted.kind.name_field: wanted.name} if wanted.kind.name_field else body

    def _change(self, wanted: Wanted, present: Present, different: Sequence[tuple[Field, Any, Any]]) -> Present:
        """Returns it with its id, which is another one where it is made anew."""
        kind, path = wanted.kind, f"{present.base}{present.id}/"
        acts = {wish.api: act for wish, _, new in different if isinstance(new, bool) and (act := kind.acts.get((wish.api, new)))}
        rest = [each for each in different if each[0].api not in acts]
        if kind.change != Change.ANEW:
            refuse_fixed(wanted, [each for each in rest if each[0].is_fixed or each[0].at == At.CREATE or kind.change == Change.NONE])
        made = None
        with telling(wanted):
            for act in acts.values():
                self.rest.post(f"{path}{act}")
            if rest and kind.change == Change.PATCH:
                self.rest.patch(path, {wish.api: new for wish, _, new in rest})
            elif rest:
                if kind.change == Change.ANEW:
                    self.rest.delete(path)
                made = self.rest.post(path_of(kind, wanted.values), self._body(wanted, set(wanted.values)))
        self.objects.forget(kind)
        return present if made is None else self.objects.present(kind, made, wanted.values)

    def _may_keep(self, wanted: Wanted, present: Present) -> bool:
        """Tell whether the caller may say who keeps the object: what carries a label is deleted by whoever prunes by it."""
        actor, kind = actor_of(self.request), wanted.kind
        if is_platform_admin(actor):
            return True
        if not kind.is_of_owners or not has_scope(self.request, Scope.GPR_WRITE if kind.plans else Scope.WRITE):
            return False
        slice_ = Slice.objects.filter(name=str(wanted.values["slice"])).first() if wanted.values.get("slice") else None
        verb = Verb.REQUEST if kind.plans and present.row.get("owner") == actor.name else Verb.MANAGE
        return slice_ is not None and may(actor, verb, slice_)

    def _own(self, wanted: Wanted, present: Present, owners: Mapping[str, str], taken: Container[str]) -> None:
        """A field is owned by the manager that wrote its value last. A field that the document no longer names loses its owner."""
        mine = self.terms.manager
        others = {name: owner for name, owner in owners.items() if owner != mine and name not in taken}
        now = dict.fromkeys([*wanted.values, LABELS], mine) | others
        fields = {"object_id": present.id, "labels": dict(wanted.labels), "owners": now}
        kind, key = wanted.kind.name, key_of(wanted.kind, wanted.name, wanted.values)
        if not ManifestObject.objects.filter(kind=kind, key=key, **fields).exists():
            ManifestObject.objects.update_or_create(kind=kind, key=key, defaults=fields)

    # Deletion.

    def _note_archived(self, wanted: Iterable[Wanted]) -> None:
        self._archived = {(each.kind.name, each.name) for each in wanted if each.kind.archives}

    def _delete(self, wanted: Wanted) -> Result:
        owners = {("Workspace", wanted.values.get("slice")), ("Project", wanted.values.get("project"))}
        if owners & self._archived and not wanted.kind.archives:
            row = Q(kind=wanted.kind.name, key=key_of(wanted.kind, wanted.name, wanted.values))
            for owner in owners & self._archived:
                self._along[owner].append(row)
            return self._result(wanted, "kept", note="It is archived together with the object that it belongs to.")
        try:
            self._look_up_references(wanted)
        except Faulty:
            return self._result(wanted, "absent")
        with telling(wanted):
            found = self.objects.find(wanted.kind, wanted.name, wanted.values)
            present = only(wanted, found)
            act, note = ("absent", "") if present is None else self._remove(present)
        return self._result(wanted, act, note=note)

    def _remove(self, present: Present) -> tuple[str, str]:
        """Returns the act, and why it is kept."""
        kind = present.kind
        if kind.kept:
            return "kept", kind.kept
        if present.row.get("life", OPEN) != OPEN:
            return "kept", f"It is {present.row['life']} already."
        path = f"{present.base}{present.id}/"
        if kind.archives:
            self.rest.post(f"{path}archive/")
        elif kind.name == "GPUProvisioningRequest" and present.row["state"] not in WAITING:
            self.rest.post(f"{path}release/")
        elif kind.name == "GPUJob":
            self.rest.post(f"{path}cancel/")
        else:
            self.rest.delete(path)
        self.objects.forget(kind)
        for row in (Q(kind=kind.name, key=present.key), *self._along.pop((kind.name, present.name), ())):
            ManifestObject.objects.filter(row).delete()
        return ("archived", "") if kind.archives else ("deleted", "")

    def _prunable(self) -> list[Wanted]:
        """Returns objects that this manager applied with the labels and no document names any more, the newest first.

        Others may have used the same labels: of what the caller may not see, nothing is told.
        """
        rows = [row for row in ManifestObject.objects.order_by("pk") if self._is_pruned(row)]
        return sorted((each for row in rows if self._is_there(row, each := _of_row(row))), key=lambda each: -ORDER[each.kind.name])

    def _would_change(self, wanted: Wanted) -> bool:
        try:
            self._look_up_references(wanted)
            with telling(wanted):
                present = only(wanted, self.objects.find(wanted.kind, wanted.name, wanted.values))
        except Faulty:
            return True
        if present is None:
            row = ManifestObject.objects.filter(kind=wanted.kind.name, key=key_of(wanted.kind, wanted.name, wanted.values)).first()
            return row is None or not self._ended(wanted, row)
        return bool(_different(wanted, present))

    def _is_there(self, row: ManifestObject, wanted: Wanted) -> bool:
        try:
            self._look_up_references(wanted)
            with telling(wanted):
                found = self.objects.find(wanted.kind, wanted.name, wanted.values)
        except Faulty:
            return False
        # Another id: somebody made it anew. An invitation that is taken has the id of the membership.
        return any(each.id == row.object_id or wanted.kind.also for each in found)

    def _is_pruned(self, row: ManifestObject) -> bool:
        is_chosen = self.terms.prune.items() <= row.labels.items() and row.owners.get(LABELS) == self.terms.manager
        return is_chosen and row.kind in BY_NAME and (row.kind, row.key) not in self._kept

    def _result(self, wanted: Wanted, act: str, **more: Any) -> Result:
        place = next((str(wanted.values[name]) for name in ("slice", "project", "node", "cluster") if wanted.values.get(name)), "")
        own = [str(wanted.values[key]) for key in wanted.kind.keys if wanted.values.get(key) not in (None, place)]
        name = wanted.name if wanted.kind.name_field else " ".join(own)
        return Result(wanted.kind.name, name, place, act, wanted.document.file, wanted.line, **more)


def _of_row(row: ManifestObject) -> Wanted:
    kind, values = BY_NAME[row.kind], json.loads(row.key)
    name = values.pop(0) if kind.name_field else ""
    return Wanted(Document("", 0, {}, {}), kind, name, dict(zip(kind.keys, values, strict=True)), row.labels)


def _holds(document: Document, faulty: Sequence[int]) -> bool:
    """Takes as `faulty` the lines of its file, sorted."""
    last = max([document.line, *document.lines.values()])
    at = bisect_left(faulty, document.line)
    return at < len(faulty) and faulty[at] <= last


def _kept_of(row: ManifestObject | None, present: Present | None) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the labels and the owners. Another object of the same name has none."""
    if row is None or present is None or row.object_id != present.id:
        return {}, {}
    return dict(row.labels), dict(row.owners)


def _different(wanted: Wanted, present: Present | None) -> list[tuple[Field, Any, Any]]:
    """Returns field, old and new value."""
    fields = {wish.api: wish for wish in wanted.kind.fields}
    if present is None:
        return [(fields[name], None, value) for name, value in wanted.values.items() if value not in (None, "")]
    olds = present.values
    return [(fields[name], olds.get(name), new) for name, new in wanted.values.items() if not is_same(fields[name], new, olds.get(name))]

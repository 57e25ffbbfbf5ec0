"""Turns refusals into mistakes of a document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from manifests.objects import NOT_FOUND, Present, shown
from manifests.rest import CallRefused
from protocol.manifests.documents import Wanted, translated
from protocol.manifests.faults import Fault
from protocol.manifests.kinds import Field, manifest_name
from protocol.manifests.text import Path


class Faulty(Exception):
    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__()
        self.faults = faults


def only(wanted: Wanted, found: Sequence[Present]) -> Present | None:
    if len(found) > 1:
        text = f"{len(found)} objects have this name. Rename all but one."
        raise Faulty([wanted.fault("ambiguous", text, ("metadata", "name"))])
    return found[0] if found else None


def refuse_fixed(wanted: Wanted, fixed: Iterable[tuple[Field, Any, Any]]) -> None:
    faults = [
        wanted.fault("fixed", f"It is {json.dumps(shown(wish, old))} and cannot change. Delete the object and make it again.", path)
        for wish, old, _ in fixed
        for path in [wanted.path_of(wish.api)]
    ]
    if faults:
        raise Faulty(faults)


def _absent(detail: str) -> str:
    """Returns the word for the object in `There is no such node, or …`."""
    return detail.removeprefix("There is no such ").split(",")[0]


@contextmanager
def telling(wanted: Wanted) -> Iterator[None]:
    """Turns a refusal of the API into faults of the document."""
    try:
        yield
    except CallRefused as refused:
        _tell(wanted, refused)


def _tell(wanted: Wanted, refused: CallRefused) -> NoReturn:
    problem, kind = refused.problem, wanted.kind
    by_field: Mapping[str, Sequence[str]] = problem.get("errors") or {}
    faults = []
    for name, texts in by_field.items():
        api, *rest = name.split(".")
        path: Path = wanted.path_of(api, *rest)
        if not path and any(wish.api == api for wish in kind.fields):
            path = ("spec", manifest_name(api))
        faults += [wanted.fault(refused.code, translated(kind, text), path) for text in texts]
    if not faults:
        path = wanted.path_of(_absent(str(problem["detail"]))) if refused.code == NOT_FOUND else ()
        faults = [wanted.fault(refused.code, translated(kind, str(problem["detail"])), path)]
    raise Faulty(faults) from refused

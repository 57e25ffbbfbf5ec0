# `make client` writes this file. Do not edit it.
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Fault:
    """Names one mistake. `line` counts from 1; 0: it belongs to no line. `field`: as `spec.nodes`, or empty."""

    file: str
    line: int
    field: str
    code: str
    detail: str
    kind: str = ""
    name: str = ""


FAULTS_TOLD = 100


def told_first(faults: Sequence[Fault]) -> list[Fault]:
    """Returns the first FAULTS_TOLD by file and line, and how many more there are."""
    in_order = sorted(faults, key=lambda fault: (fault.file, fault.line))
    told, more = in_order[:FAULTS_TOLD], in_order[FAULTS_TOLD:]
    if more:
        text = f"There are {len(more)} more mistakes from here on. They appear once you have fixed those before."
        told.append(Fault(more[0].file, more[0].line, "", "too_many", text))
    return told


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns e.g. ` Did you mean nodes?`, or nothing."""
    names = {each.lower(): each for each in known}
    found = get_close_matches(word.lower()[:100], names, n=1, cutoff=0.6)
    return f" Did you mean {names[found[0]]}?" if found else ""

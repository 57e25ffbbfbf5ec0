# `make client` writes this file. Do not edit it.
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake. `line` counts from 1; 0: it belongs to no line. `field`: as `spec.nodes`, or empty."""

    file: str
    line: int
    field: str
    code: str
    detail: str
    kind: str = ""
    name: str = ""


def nearest(word: str, known: Iterable[str]) -> str:
    """E.g. ` Did you mean nodes?`, or nothing."""
    names = {each.lower(): each for each in known}
    found = get_close_matches(word.lower()[:100], names, n=1, cutoff=0.6)
    return f" Did you mean {names[found[0]]}?" if found else ""

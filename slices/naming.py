"""Which Kubernetes namespaces a workspace may have: names as patterns, and those that nobody may bind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LABEL_MAX_CHARS: Final = 63
DNS_LABEL: Final = r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z"
PATTERN: Final = r"\A(\*|[a-z0-9][-a-z0-9]{0,61}\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)\Z"
PATTERN_MUST: Final = "Must be the name of a Kubernetes namespace, or the beginning of one with a * behind it."


def patterns_of(workspace: str) -> list[str]:
    """What the owners of a new workspace may choose: its own name, and names that begin with it."""
    base = re.sub(r"[^a-z0-9]+", "-", workspace.lower()).strip("-")
    return [base, f"{base}-*"] if len(base) < LABEL_MAX_CHARS - 1 else [base]


def coverage(name: str, patterns: Iterable[str]) -> int:
    """How many characters of the name the most specific pattern spells out; an exact name counts above all. -1 where none matches."""
    closeness = (len(each) - 1 if each.endswith("*") else len(each) + 1 for each in patterns if _matches(name, each))
    return max(closeness, default=-1)


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def is_reserved(name: str) -> bool:
    """Those of Kubernetes and of EGS: no workspace ever has one."""
    return name == "default" or name.startswith(("kube-", "egs-"))

"""Names of namespaces and the patterns that cover them. `services.py` here decides who may bind which name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LABEL_MAX_CHARS: Final = 63
DNS_LABEL: Final = r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z"
PATTERN: Final = r"\A(\*|[a-z0-9][-a-z0-9]{0,61}\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)\Z"
PATTERN_MUST: Final = "Must be the name of a Kubernetes namespace, or the beginning of one with a * behind it."


def patterns_of(workspace: str) -> list[str]:
    base = re.sub(r"[^a-z0-9]+", "-", workspace.lower()).strip("-")
    return [base, f"{base}-*"] if len(base) < LABEL_MAX_CHARS - 1 else [base]


def coverage(name: str, patterns: Iterable[str]) -> int:
    """Returns the length of the closest matching pattern, and -1 if none matches. An exact name ranks above a prefix."""
    closeness = (len(each) - 1 if each.endswith("*") else len(each) + 1 for each in patterns if _matches(name, each))
    return max(closeness, default=-1)


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def is_reserved(name: str) -> bool:
    """Names of Kubernetes and EGS."""
    return name == "default" or name.startswith(("kube-", "egs-"))

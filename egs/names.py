"""What an object may be called that others refer to: it fits into a path and a label, and cannot be taken for an id."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

PATTERN: Final = r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z"
MUST: Final = "Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most."
_NAME: Final = re.compile(PATTERN, re.ASCII)


def name_fault(name: str) -> str:
    """What is wrong with it, as a sentence; empty where nothing is."""
    if not _NAME.match(name):
        return MUST
    try:
        UUID(name)
    except ValueError:
        return ""
    return "Must not look like an id."

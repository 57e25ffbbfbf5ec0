"""What may be called what. A name that others refer to fits into a path and a label, and cannot be taken for an id. A text that people
only read, as the name of a request, a note or a reason, is one line of visible characters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from uuid import UUID

PATTERN: Final = r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z"
MUST: Final = "Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most."
TEXT_MUST: Final = "Must be one line, and must not hold control or invisible characters."
# Letters, marks and symbols of which nothing is seen: fillers, joiners, variation selectors, a braille blank.
_BLANKS: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
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


def text_fault(text: str) -> str:
    """Returns a sentence that says what is wrong with a text that people will see, or "" if nothing is wrong."""
    return TEXT_MUST if any(map(_is_unseen, text)) else ""


def _is_unseen(character: str) -> bool:
    """Nothing is seen of it, or it breaks the line, or it is a space that looks like none or like another one."""
    if unicodedata.category(character)[0] in "CZ":
        return character != " "
    return bool(_BLANKS.match(character))

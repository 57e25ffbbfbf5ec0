"""Has the rules for names and texts. A name fits into paths and labels and is no id; a text is one visible line."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

PATTERN: Final = r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z"
MUST: Final = "Letters, digits, dots, dashes and underscores, beginning and ending with a letter or a digit; 63 at most."
TEXT_MUST: Final = "Must be one line, and must not hold control or invisible characters."
# Invisible letters, marks and symbols: fillers, joiners, variation selectors, a braille blank.
_BLANKS: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_NAME: Final = re.compile(PATTERN, re.ASCII)


def name_fault(name: str) -> str:
    """Return the fault as a sentence, or ""."""
    if not _NAME.match(name):
        return MUST
    try:
        UUID(name)
    except ValueError:
        return ""
    return "Must not look like an id."


def text_fault(text: str) -> str:
    """Return the fault as a sentence, or ""."""
    return TEXT_MUST if any(map(_is_unseen, text)) else ""


def mail_fault(address: str) -> str:
    """Return the fault as a sentence, or ""."""
    if not address.isascii():
        return "Must have plain letters only, since others look alike. A domain with other letters begins with xn--."
    try:
        validate_email(address)
    except ValidationError:
        return "Must be a mail address, as ada@example.com."
    return ""


def _is_unseen(character: str) -> bool:
    """Tell whether it is invisible, breaks the line, or is an unusual space."""
    if unicodedata.category(character)[0] in "CZ":
        return character != " "
    return bool(_BLANKS.match(character))

"""Hides what looks like a secret in command lines, before they leave the cluster. It is pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

HIDDEN: Final = "(hidden)"
# Matches HF_TOKEN, --api-key or db.password, but not --tokenizer, --max-tokens or --author.
_WORDS: Final = r"token(?!s|iz)|secret|passw(?:or)?d|passphrase|pwd|credential|(?:api|access|private|auth)[-_.]?key"
_NAME: Final = rf"[\w.-]*(?:{_WORDS})[\w.-]*"
_QUOTED: Final = r"(?:\"[^\"]*\"|'[^']*'|[^\s\"',;&|]+)"
_OPTION: Final = re.compile(rf"--?{_NAME}\Z", re.IGNORECASE)
_RULES: Final = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(rf"(--?{_NAME}\s+)(?!-){_QUOTED}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"({_NAME}[\"']?\s*[=:]\s*)(?!\s){_QUOTED}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"(\w://)[^/\s@]+@"), rf"\1{HIDDEN}@"),
    # Known beginnings of tokens, a JSON Web Token, and long words of letters and digits that nobody reads.
    (re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[a-z]-|nvapi-|egs_|AKIA|ASIA|dckr_pat_)[\w-]{8,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{10,}\.[\w-]+\.?[\w-]*"), HIDDEN),
    (re.compile(r"(?<![\w/.-])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9+]{32,}={0,2}(?![\w/.-])"), HIDDEN),
)


def without_secrets(words: Iterable[str]) -> Iterator[str]:
    """A value may be in the same word as its name, or in the next one."""
    is_next = False
    for word in words:
        if is_next and not word.startswith("-"):
            yield HIDDEN
            is_next = False
            continue
        is_next = _OPTION.match(word) is not None
        yield hide(word)


def hide(text: str) -> str:
    for pattern, put in _RULES:
        text = pattern.sub(put, text)
    return text

"""Answers as objects or errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec

from egs_client import __version__
from egs_client.errors import AnswerLost, UnexpectedAnswer, UnknownOperation, problem_of

T = TypeVar("T")
NO_SUCH_ADDRESS = "There is nothing at this address."


class Page(msgspec.Struct, Generic[T], kw_only=True):
    next: str | None
    previous: str | None
    results: list[T]


VERSION_HEADER = "EGS-Version"
_making = Lock()
_made = cache(msgspec.json.Decoder)


def read(content: bytes, *, status: int, kind: Any, url: str, headers: Mapping[str, str]) -> Any:
    """Raises a Problem, or what else speaks against the answer."""
    refuse(content, status=status, url=url, headers=headers)
    if kind is type(None):
        return None
    if not content:
        raise AnswerLost("This was done, but the connection broke before the answer came. Look at the object to see the result.")
    try:
        return _decoder(kind).decode(content)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(f"The server at {url} answers otherwise than this client expects: {error}. {_versions(headers)}") from None
    except msgspec.DecodeError:
        raise UnexpectedAnswer(f"{url} does not answer as EGS does. Is this the right address?") from None


def refuse(content: bytes, *, status: int, url: str, headers: Mapping[str, str]) -> None:
    """Raises unless the answer is one of success."""
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise UnexpectedAnswer(
            f"{url} sends on to {headers.get('Location', 'another address')}. Use that address, if it is the one of your EGS."
        )
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, dict) or "code" not in document:
        raise UnexpectedAnswer(f"{url} answers {status}, and not as EGS does. Is this the right address, and is a proxy in between?")
    if str(document.get("detail", "")).startswith(NO_SUCH_ADDRESS):
        raise UnknownOperation(f"The server at {url} does not know this operation. {_versions(headers)}")
    raise problem_of(document, status=status)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    # msgspec 0.22 crashes where two threads first decode the same struct at once.
    with _making:
        return _made(kind)


def _versions(headers: Mapping[str, str]) -> str:
    return f"It has version {headers.get(VERSION_HEADER, 'unknown')}, this client {__version__}: install the client that belongs to it."

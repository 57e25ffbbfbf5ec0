"""Answers as objects or errors."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from egs_client import __version__
from egs_client.errors import AnswerLost, UnexpectedAnswer, problem_of

T = TypeVar("T")
NO_SUCH_ADDRESS = "There is nothing at this address."


class Page(msgspec.Struct, Generic[T], kw_only=True):
    next: str | None
    previous: str | None
    results: list[T]


def read(content: bytes, *, status: int, kind: Any, url: str, location: str = "") -> Any:
    """Raises a Problem, or what else speaks against the answer."""
    refuse(content, status=status, url=url, location=location)
    if kind is type(None):
        return None
    if not content:
        raise AnswerLost("This was done, but the connection broke before the answer came. Look at the object to see the result.")
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(
            f"The server at {url} answers otherwise than this client ({__version__}) expects: {error}. "
            "It has another version; install the client that belongs to it."
        ) from None
    except msgspec.DecodeError:
        raise UnexpectedAnswer(f"{url} does not answer as EGS does. Is this the right address?") from None


def refuse(content: bytes, *, status: int, url: str, location: str = "") -> None:
    """Raises unless the answer is one of success."""
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise UnexpectedAnswer(f"{url} sends on to {location or 'another address'}. Use that address, if it is the one of your EGS.")
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, dict) or "code" not in document:
        raise UnexpectedAnswer(f"{url} answers {status}, and not as EGS does. Is this the right address, and is a proxy in between?")
    if document.get("detail") == NO_SUCH_ADDRESS:
        raise UnexpectedAnswer(
            f"The server at {url} does not know this operation. It is older or newer than this client ({__version__}); "
            "install the client that belongs to it."
        )
    raise problem_of(document, status=status)

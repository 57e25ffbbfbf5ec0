"""Reads messages in several threads.

msgspec reads the annotations of a struct when it first decodes one. A thread that decodes the same struct meanwhile finds them half read,
and its process ends with a segmentation fault (msgspec 0.22). So one thread at a time makes a decoder.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_making = Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    with _making:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def decode(body: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """Raises msgspec.DecodeError."""
    return decoder(kind).decode(body)


def convert(given: Any, kind: type[T]) -> T:
    """Makes it of dicts, lists and scalars. Raises msgspec.ValidationError."""
    decoder(kind)
    return msgspec.convert(given, kind)

# `make client` writes this file. Do not edit it.

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


class Difference(Struct, kw_only=True):
    field: str
    old: Any
    new: Any


class ManifestFault(Struct, kw_only=True):
    file: str
    line: int
    field: str
    kind: str
    name: str
    code: str
    detail: str


class ManifestFileRequest(Struct, kw_only=True):
    """Refuses unknown fields, and tells them together with all other errors."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    text: Annotated[str, Meta(pattern="^[^\\x00]*$")]


class ManifestResult(Struct, kw_only=True):
    kind: str
    name: str
    place: str
    act: str
    file: str
    line: int
    changes: list[Difference]
    note: str
    signing_secret: str | None


class ManifestReport(Struct, kw_only=True):
    results: list[ManifestResult]
    faults: list[ManifestFault]


class ManifestText(Struct, kw_only=True):
    text: str

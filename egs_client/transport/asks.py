"""Writes requests as bytes."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from egs_client import __version__

WAIT = "wait_s"
USER_AGENT = f"egs-client/{__version__} Python/{platform.python_version()}"


@dataclass(frozen=True, slots=True)
class Ask:
    http: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    content: bytes | None


def ask(
    http: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
    is_keyed: bool = False,
    key: str | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
) -> Ask:
    """Arguments that are UNSET are left out. A keyed request has one Idempotency-Key for all its tries."""
    headers = {"If-Match": if_match} if if_match else {}
    if if_none_match:
        headers["If-None-Match"] = if_none_match
    if is_keyed:
        headers["Idempotency-Key"] = key or str(uuid.uuid4())
    content = None
    if body is not None:
        content = msgspec.json.encode(given(body))
        headers["Content-Type"] = "application/json"
    return Ask(http, path, {name: _text(value) for name, value in given(params or {}).items()}, headers, content)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return value.isoformat() if isinstance(value, datetime) else str(value)

# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct


class Audit(Struct, kw_only=True):
    id: str
    at: datetime
    kind: str
    severity: str
    message: str
    reason: str
    old: str
    new: str
    actor: str | None = None
    request_id: str
    address: str
    token_key: str
    login_id: str | None
    gpr_id: str | None
    slice_id: str | None
    node_id: str | None
    cluster_id: str | None
    data: Any


class Channel(Struct, kw_only=True):
    id: str
    name: str
    kind: str
    slice: str | None = None
    target: str
    notice_kinds: list[str]
    digest: str
    is_on: bool
    needs_code: bool
    created_at: datetime


class Delivery(Struct, kw_only=True):
    id: str
    state: str
    is_test: bool
    texts: list[str]
    created_at: datetime
    due_at: datetime
    attempt_count: int
    sent_at: datetime | None
    error: str


class NewChannel(Struct, kw_only=True):
    id: str
    name: str
    kind: str
    slice: str | None = None
    target: str
    notice_kinds: list[str]
    digest: str
    is_on: bool
    needs_code: bool
    created_at: datetime
    signing_secret: str | None


class Notice(Struct, kw_only=True):
    id: str
    kind: str
    severity: str
    text: str
    event: str
    gpr: str | None
    slice: str | None
    created_at: datetime
    read_at: datetime | None


class ReadAll(Struct, kw_only=True):
    read_count: int

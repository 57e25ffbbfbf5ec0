# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct


class CheckResult(Struct, kw_only=True):
    """Shows one measurement of a step."""

    id: str
    name: str
    check: str
    gpu_uuid: str
    value: float | None
    unit: str
    threshold: float | None
    is_least: bool
    verdict: str
    text: str


class Holder(Struct, kw_only=True):
    id: str
    gpr_id: str
    gpr: str
    slice_id: str
    slice: str
    phase: str
    ends_at: datetime


class NewToken(Struct, kw_only=True):
    id: str
    name: str
    key_id: str
    scopes: list[str]
    networks: Any
    slices: Any
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    last_address: str
    revoked_at: datetime | None
    token: str | None


class Step(Struct, kw_only=True):
    id: str
    name: str
    step: str
    stage: str
    gpr_id: str
    node_id: str
    node: str
    run: int
    attempt: int
    outcome: str
    skipped_why: str
    started_at: datetime
    ended_at: datetime
    blames_node: bool
    log: str
    evidence: dict[str, Any]
    results: list[CheckResult]


class Token(Struct, kw_only=True):
    id: str
    name: str
    key_id: str
    scopes: list[str]
    networks: Any
    slices: Any
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    last_address: str
    revoked_at: datetime | None

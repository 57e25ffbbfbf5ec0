# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct


class DeviceLogin(Struct, kw_only=True):
    device_code: str
    user_code: str
    page_url: str
    link_url: str
    expires_at: datetime
    interval_s: int


class GroupRole(Struct, kw_only=True):
    id: str
    provider: str
    group: str
    role: str
    created_at: datetime


class Identity(Struct, kw_only=True):
    provider: str
    subject: str
    groups: Any
    last_login_at: datetime


class Login(Struct, kw_only=True):
    id: str
    provider: str | None = None
    token: str | None = None
    address: str
    browser: str
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime


class SignIn(Struct, kw_only=True):
    ways: list[str]


class User(Struct, kw_only=True):
    id: str
    name: str
    email: str
    role: str
    role_source: str
    is_active: bool
    is_service: bool
    created_at: datetime
    identities: list[Identity]

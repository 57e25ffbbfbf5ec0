"""Creation by REST with an `Idempotency-Key`: a client that lost the answer asks again and gets the same object."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request

from accounts.authentication import actor_of
from accounts.services import Remember, create_once, in_one
from egs.errors import InvalidInput

HEADER = "Idempotency-Key"
KEY_MAX_CHARS = 255


@dataclass(frozen=True, slots=True)
class Creation:
    """The object to answer with, and whether an earlier request made it."""

    object_id: UUID
    is_replay: bool

    @property
    def headers(self) -> dict[str, str]:
        return {"Idempotency-Replayed": "true"} if self.is_replay else {}


def create_by_request(request: Request, *, route: str, now: datetime, create: Callable[[], UUID]) -> Creation:
    """Run `create`, once if the request names a key. Raises InvalidInput for a bad key, Conflict for one with another body."""
    return file_by_request(request, route=route, now=now, create=in_one(create))


def file_by_request(request: Request, *, route: str, now: datetime, create: Callable[[Remember], UUID]) -> Creation:
    """The same where `create` has transactions of its own: see `create_once`."""
    key = request.headers.get(HEADER)
    if key is None:
        return Creation(create(lambda _: None), False)
    if not 0 < len(key) <= KEY_MAX_CHARS or not key.isascii() or not key.isprintable():
        raise InvalidInput({HEADER: [f"Must be 1 to {KEY_MAX_CHARS} printable ASCII characters."]})
    digest = digest_of(request.data)
    return Creation(*create_once(user=actor_of(request), route=route, key=key, digest=digest, now=now, create=create))


def digest_of(body: Any) -> str:
    """By which the same request is known again, whether it came by REST or by a page."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

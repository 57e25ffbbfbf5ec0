"""Answers a POST with an `Idempotency-Key` once; the key is stored in the transaction of the change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.db import IntegrityError, transaction
from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import actor_of
from accounts.models import IdempotentCreation, User
from core.errors import Conflict, EgsError, Gone, InvalidInput, NotFound
from core.rest.views import ApiViewSet, Handler

HEADER = "Idempotency-Key"
MaybeId = TypeVar("MaybeId", UUID, UUID | None)
KEY_MAX_CHARS = 255
GONE = "A request with this Idempotency-Key succeeded, but its object has been deleted since, or you may not see it any more."


class Remember(Protocol):
    def __call__(self, object_id: UUID | None, told: Any = None) -> None: ...


def post_once(view: ApiViewSet[Any], handler: Handler, request: Request, *args: Any, **kwargs: Any) -> Response:
    """Run the handler, or answer with the object as it is now if this key has run it.

    Raises InvalidInput for a malformed key, Conflict for one of another request, Gone when the object is not visible any more.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return handler(request, *args, **kwargs)
    if not 0 < len(key) <= KEY_MAX_CHARS or not key.isascii() or not key.isprintable():
        raise InvalidInput({HEADER: [f"Must be 1 to {KEY_MAX_CHARS} printable ASCII characters."]})
    answers: list[Response] = []

    def act(remember: Remember) -> UUID | None:
        if view.action in view.own_transactions:
            view.remember = remember
            answers.append(handler(request, *args, **kwargs))
            return _id_of(answers[-1])
        with transaction.atomic():
            answers.append(handler(request, *args, **kwargs))
            remember(_id_of(answers[-1]), _told_by(answers[-1]))
        return _id_of(answers[-1])

    route, digest = _route(request), digest_of(request.data)
    object_id, is_replay = create_once(user=actor_of(request), route=route, key=key, digest=digest, now=view.now, create=act)
    if not is_replay:
        return answers[-1]
    told = IdempotentCreation.objects.values_list("told", flat=True).get(user=actor_of(request), route=route, key=key)
    return _again(view, object_id, told)


def digest_of(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _again(view: ApiViewSet[Any], object_id: UUID | None, told: Any) -> Response:
    try:
        answer = view.replay(object_id) if told is None else Response(told)
    except (NotFound, Http404):
        raise Gone(GONE) from None
    answer.headers["Idempotency-Replayed"] = "true"
    return answer


def _route(request: Request) -> str:
    """Returns e.g. `gprs/<id>/extend`."""
    return request.path.partition("/v1/")[2].strip("/")


def _id_of(answer: Response) -> UUID | None:
    id_ = answer.data.get("id") if isinstance(answer.data, dict) else None
    return UUID(str(id_)) if id_ is not None else None


def _told_by(answer: Response) -> Any:
    """Returns what no object can tell again later, such as the verdicts of a bulk act."""
    return answer.data if _id_of(answer) is None else None


def create_once(
    *, user: User, route: str, key: str, digest: str, now: datetime, create: Callable[[Remember], MaybeId]
) -> tuple[MaybeId, bool]:
    """Run `create` unless this key has run it. Returns the object's id and whether it was a repeat.

    `create` must pass the id to its argument, in the transaction of the change. Raises Conflict for another body.
    """
    if (old := _creation(user, route, key, digest)) is not None:
        stored: Any = old.object_id
        return stored, True

    def remember(object_id: UUID | None, told: Any = None) -> None:
        IdempotentCreation.objects.create(user=user, route=route, key=key, digest=digest, object_id=object_id, told=told, created_at=now)

    try:
        return create(remember), False
    except (IntegrityError, EgsError):
        # A concurrent request with the same key may have taken the name or changed the state first.
        if (old := _creation(user, route, key, digest)) is None:
            raise
        stored = old.object_id
        return stored, True


def in_one(create: Callable[[], UUID]) -> Callable[[Remember], UUID]:
    """Makes `create` one transaction, for `create_once`."""

    @transaction.atomic
    def create_and_remember(remember: Remember) -> UUID:
        object_id = create()
        remember(object_id)
        return object_id

    return create_and_remember


def _creation(user: User, route: str, key: str, digest: str) -> IdempotentCreation | None:
    row = IdempotentCreation.objects.filter(user=user, route=route, key=key).first()
    if row is not None and row.digest != digest:
        raise Conflict("This Idempotency-Key was used for another request. Take a new key for a new request.")
    return row

"""Defines errors of services, with texts for users. `code` is part of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class EgsError(Exception):
    """`extra` holds further members of the problem document that its reader may see."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "error"
    title: ClassVar[str] = "The request could not be carried out"
    headers: Mapping[str, str] = {}  # of the answer

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class InvalidInput(EgsError):
    """`errors` has a list of sentences for each field."""

    code = "invalid_input"
    title = "Some of the input is not valid"

    def __init__(self, errors: dict[str, list[str]]) -> None:
        super().__init__(" ".join(f"{field}: {' '.join(texts)}" for field, texts in errors.items()), errors=errors)


class CanNeverStart(EgsError):
    code = "can_never_start"
    title = "This request could never start"


class BookingDoesNotFit(EgsError):
    status = 409
    code = "booking_does_not_fit"
    title = "There is no room at that time"


class OverPolicy(EgsError):
    code = "over_policy"
    title = "The policy of the workspace does not allow this"


class QueueFull(OverPolicy):
    """`wait_s`: the time until one of those that wait starts, where the plan knows one."""

    status = 429
    code = "queue_full"
    title = "Too many requests of the workspace wait"

    def __init__(self, detail: str, *, wait_s: float | None, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {} if wait_s is None else {"Retry-After": str(int(wait_s) + 1)}


class TooManyTries(EgsError):
    """`wait_s`: the time until another try counts anew."""

    status = 429
    code = "too_many_tries"
    title = "Too many tries"

    def __init__(self, detail: str, *, wait_s: float) -> None:
        super().__init__(detail)
        self.headers = {"Retry-After": str(int(wait_s) + 1)}


class NotAllowed(EgsError):
    status = 403
    code = "not_allowed"
    title = "You may not do this"


class NotFound(EgsError):
    """The text is the same for objects that exist but are hidden from the reader."""

    status = 404
    code = "not_found"
    title = "Not found"

    def __init__(self, what: str = "object") -> None:
        super().__init__(f"There is no such {what}, or you may not see it.")
        self.what = what


class IllegalTransition(EgsError):
    status = 409
    code = "wrong_state"
    title = "Not possible in this state"


class StaleState(EgsError):
    status = 409
    code = "stale_version"
    title = "It has changed since you read it"


class Conflict(EgsError):
    status = 409
    code = "conflict"
    title = "Conflicts with another request"


class Gone(EgsError):
    status = 410
    code = "gone"
    title = "It is not there any more"


class NameTaken(Conflict):
    """A form shows it beside the name."""

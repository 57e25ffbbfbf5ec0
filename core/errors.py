"""What can go wrong, as the user reads it.

Services raise these; the API turns each into one RFC 9457 problem document (core/rest/problems.py), pages into one message.
`code` is stable and part of the contract; `detail` says what is wrong and what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


class EgsError(Exception):
    """`extra` are further members of the problem document; whoever raises it puts in nothing that the reader may not see."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "error"
    title: ClassVar[str] = "The request could not be carried out"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class InvalidInput(EgsError):
    """`errors`: a list of sentences for each field."""

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
    """The workspace has reached its limit of waiting requests. It can file another when one of them starts or is canceled."""

    status = 429
    code = "queue_full"
    title = "Too many requests of the workspace wait"


class NotAllowed(EgsError):
    status = 403
    code = "not_allowed"
    title = "You may not do this"


class NotFound(EgsError):
    """Also for what exists but is not the reader's to know of: same text, same code."""

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
    """Another object has the name. A form shows it beside the name."""

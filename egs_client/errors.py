"""Has all errors of the SDK. Their text says what is wrong and what to do; `code` of a Problem is for programs."""

from __future__ import annotations

from typing import Any


class EgsError(Exception):
    """All errors of the SDK derive from it."""


class NotSetUp(EgsError):
    """No address or no token is known."""


class Unreachable(EgsError):
    """The server did not answer for as long as the client has patience. What was asked for may have been done."""


class UnexpectedAnswer(EgsError):
    """The answer is not what this version of the client understands: another version of EGS, or another server altogether."""


class UnknownOperation(UnexpectedAnswer):
    """The server has no such operation: it is older or newer than this client."""


class AnswerLost(EgsError):
    """It was done, but the connection broke before the answer came, and the server cannot repeat that."""


class Ended(EgsError):
    """The GPR ended before it reached the state that was waited for."""

    def __init__(self, text: str, *, gpr: Any) -> None:
        super().__init__(text)
        self.gpr = gpr


class WaitedTooLong(EgsError):
    """The time is over before the awaited state was reached. A GPR was not canceled."""

    def __init__(self, text: str, *, gpr: Any = None) -> None:
        super().__init__(text)
        self.gpr = gpr


class Problem(EgsError):
    """The server refused the call; it carries the server's words. `extra` has further members of the problem document."""

    status: int
    code: str

    def __init__(
        self,
        *,
        status: int,
        code: str,
        title: str,
        detail: str,
        errors: dict[str, list[str]] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail or title)
        self.status, self.code, self.title, self.detail = status, code, title, detail
        self.errors, self.extra = errors or {}, extra or {}


class InvalidInput(Problem):
    """400: `errors` has sentences by field."""


class OverPolicy(Problem):
    """400: the policy of the workspace does not allow it."""


class CanNeverStart(Problem):
    """400: no cluster could ever hold it."""


class NotSignedIn(Problem):
    """401: the token is missing, unknown, revoked or over."""


class NotAllowed(Problem):
    """The server answered 403."""


class AuthorizationPending(Problem):
    """400: nobody has confirmed the code of a terminal yet."""


class SlowDown(Problem):
    """The server answered 400: wait 5 s longer between two tries."""


class CodeOver(Problem):
    """400: the code of a terminal has expired, or it was used."""


class NotFound(Problem):
    """404: there is none, or the caller may not see it."""


class Conflict(Problem):
    """The server answered 409."""


class WrongState(Conflict):
    """The server answered 409: the present state does not allow it."""


class StaleVersion(Conflict):
    """409: somebody changed it since the caller read it. Read it again, and decide again."""


class Gone(Problem):
    """The server answered 410."""


class TooMany(Problem):
    """429: more than the server takes now."""


class QueueFull(TooMany):
    """The server answered 429: too many requests of the workspace wait."""


class TooManyHeld(TooMany):
    """429: too many calls wait for something new. Ask without waiting."""


class ServerFault(Problem):
    """The server answered 5xx."""


_BY_CODE: dict[str, type[Problem]] = {
    "invalid_input": InvalidInput,
    "over_policy": OverPolicy,
    "can_never_start": CanNeverStart,
    "authorization_pending": AuthorizationPending,
    "slow_down": SlowDown,
    "expired_token": CodeOver,
    "invalid_grant": CodeOver,
    "wrong_state": WrongState,
    "stale_version": StaleVersion,
    "queue_full": QueueFull,
    "too_many_held": TooManyHeld,
}
_BY_STATUS: dict[int, type[Problem]] = {
    400: InvalidInput,
    401: NotSignedIn,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooMany,
}


def problem_of(document: dict[str, Any], *, status: int) -> Problem:
    known = {"type", "status", "code", "title", "detail", "errors"}
    code = str(document.get("code", "unknown"))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (ServerFault if status >= 500 else Problem)
    return kind(
        status=status,
        code=code,
        title=str(document.get("title", "")),
        detail=str(document.get("detail", "")),
        errors=document.get("errors"),
        extra={name: value for name, value in document.items() if name not in known},
    )

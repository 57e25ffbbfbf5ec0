"""Defines the exit codes and how an error is shown."""

from __future__ import annotations

import sys

from egs_client import errors
from egs_client.cli.words import here

# `egs --help` prints them.
MEANINGS = {
    0: "done",
    1: "egs itself failed",
    2: "the command is not right",
    3: "not signed in, or the token or code is over",
    4: "not allowed",
    5: "there is no such thing, or you may not see it",
    6: "refused: the input, the policy, or it could never start",
    7: "not possible now: its state, or somebody changed it",
    8: "it still waits: the time of --timeout is over",
    9: "the server does not answer",
    10: "it ended before it was active",
    11: "too many requests",
    12: "client and server do not fit together",
    13: "there are differences",
    14: "the job failed",
    15: "the job was stopped before it was done",
    130: "interrupted; the last line says what goes on",
}
OWN_FAULT, WRONG_COMMAND, REFUSED, DIFFERENT, FAILED, STOPPED, INTERRUPTED, PIPE_CLOSED = 1, 2, 6, 13, 14, 15, 130, 141

_CODES: tuple[tuple[type[errors.EgsError], int], ...] = (
    (errors.NotSetUp, 3),
    (errors.NotSignedIn, 3),
    (errors.CodeOver, 3),
    (errors.NotAllowed, 4),
    (errors.NotFound, 5),
    (errors.Gone, 5),
    (errors.InvalidInput, 6),
    (errors.OverPolicy, 6),
    (errors.CanNeverStart, 6),
    (errors.QueueFull, 11),
    (errors.TooMany, 11),
    (errors.Conflict, 7),
    (errors.WaitedTooLong, 8),
    (errors.Unreachable, 9),
    (errors.AnswerLost, 9),
    (errors.ServerFault, 9),
    (errors.Ended, 10),
    (errors.UnexpectedAnswer, 12),
)


class Refused(errors.EgsError):
    """Says that a command cannot be carried out as it was typed."""


def code_of(error: errors.EgsError) -> int:
    if isinstance(error, Refused):
        return WRONG_COMMAND
    return next((code for kind, code in _CODES if isinstance(error, kind)), 6)


def tell(error: errors.EgsError) -> None:
    """Tells the error on standard error, with what to do."""
    if isinstance(error, errors.StaleVersion):
        say("error: Somebody changed it meanwhile, so nothing was done. Look at it again, then repeat the command.")
    elif isinstance(error, errors.InvalidInput) and error.errors:
        for field, sentences in error.errors.items():
            say(f"error: {field}: {' '.join(sentences)}")
    else:
        say(f"error: {here(str(error))}")
    if isinstance(error, errors.NotSignedIn):
        say("Sign in again: egs login")
    elif isinstance(error, errors.Unreachable):
        say("Is the address right (egs whoami), and is the server up? The server may have done it already: look before you repeat it.")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def help_text() -> str:
    return "\n".join(["\b", "Exit codes:", *(f"{code:>5}  {meaning}" for code, meaning in MEANINGS.items())])

"""All commands share this: the client, the workspace that is meant, a GPR by its name, and questions to the person."""

from __future__ import annotations

import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import click

from egs_client.cli import early
from egs_client.cli.exits import Refused, say
from egs_client.errors import NotFound, NotSetUp

if TYPE_CHECKING:
    from egs_client.models.gpr import GprDetail
    from egs_client.sync.client import Client

PATIENCE_S = 10.0


@dataclass(slots=True)
class Chosen:
    """Holds the options of `egs` itself."""

    profile: str | None = None
    context: click.Context | None = None  # of the command that asks the server


chosen = Chosen()


def client(*, timeout_s: float | None = None) -> Client:
    """Raises NotSetUp."""
    chosen.context = click.get_current_context(silent=True)
    # httpx imports a command of its own where rich and click are there, which takes 80 ms.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None makes its import fail, as httpx expects
    from egs_client.sync.client import Client
    from egs_client.sync.transport import TIMEOUT_S

    made = Client(profile=chosen.profile, patience_s=PATIENCE_S, timeout_s=timeout_s or TIMEOUT_S)
    told: list[str] = []

    def on_pause(pause_s: float, cause: str) -> None:
        if not told:
            say(f"The server does not answer ({cause}); trying again …")
        told.append(cause)

    made.on_pause = on_pause
    return made


def workspace_of(given: str | None, client: Client) -> str:
    """Returns the workspace that was named, that `egs login` stored, or the only one where the person may file. Raises Refused."""
    from egs_client.sync.box import only_workspace

    try:
        return given or client.workspace or only_workspace(client)
    except NotSetUp as error:
        raise Refused(f"{error} Add -n WORKSPACE, or make one the default: egs workspace use WORKSPACE") from None


def gpr_of(reference: str, client: Client) -> GprDetail:
    """Finds a GPR by id or by name; of several of one name the one that has not ended. Raises NotFound or Refused."""
    reference = reference.removeprefix("gpr/")
    try:
        uuid.UUID(reference)
    except ValueError:
        return client.gprs.get(_id_of(reference, client))
    return client.gprs.get(reference)


def _id_of(name: str, client: Client) -> str:
    from egs_client.gprs import ENDED

    rows = [gpr for gpr in client.gprs.list(name=name, page_size=500).all(limit=500) if gpr.name == name]
    live = [gpr for gpr in rows if gpr.state not in ENDED]
    if not rows:
        raise NotFound(
            status=404, code="not_found", title="Not found", detail=f"There is no GPR {name}, or you may not see it: egs gpr list"
        )
    if len(live) > 1:
        raise Refused(f"There are {len(live)} GPRs of the name {name}. Name one by its id: {', '.join(gpr.id for gpr in live)}")
    return (live or rows)[0].id


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(question: str, *, is_yes: bool, needs_yes: bool = False) -> bool:
    """Asks the person. Without a terminal only `--yes` agrees where `needs_yes` is set; elsewhere the command goes on."""
    if is_yes:
        return True
    if not is_interactive():
        if needs_yes:
            raise Refused("There is no terminal to ask at, so add --yes to do this, or --dry-run to see its effects.")
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


@contextmanager
def settled() -> Iterator[None]:
    """Holds a Ctrl-C back until the server has answered, so that nobody has to guess what it did. A second one goes through."""
    early.over()
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if held:
            signal.signal(signal.SIGINT, old)
            raise KeyboardInterrupt
        held.append(number)
        say("Waiting for the server's answer; Ctrl-C again stops that, and leaves open whether it was done.")

    old = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
    if held:
        raise KeyboardInterrupt

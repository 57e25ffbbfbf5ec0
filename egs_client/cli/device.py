"""Gets a token by the device flow: a code is shown here and confirmed on a page, in a browser on this machine or any other."""

from __future__ import annotations

import os
import socket
import sys
import termios
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from egs_client.cli.exits import say
from egs_client.cli.session import PATIENCE_S
from egs_client.errors import AuthorizationPending, ServerFault, SlowDown, UnknownOperation, Unreachable
from egs_client.sync.client import Client

if TYPE_CHECKING:
    from egs_client.models.accounts import DeviceLogin

SLOWER_BY_S = 5
Scope = Literal["read", "gpr:write", "write", "admin"]


def token_by_device(url: str, *, scope: Scope, is_here: bool) -> str:
    """Empty where the server has no such way. `is_here`: the browser may open on this machine. Raises an EgsError."""
    with Client(url, "", patience_s=PATIENCE_S) as egs:
        if not _has_it(egs):
            return ""
        try:
            asked = egs.device_logins.create(name=f"egs on {socket.gethostname()}"[:63], scope=scope)
            say(f"Your code is {asked.user_code}. Confirm it at {asked.page_url}\nor open {asked.link_url}")
            if is_here and has_browser():
                webbrowser.open(asked.link_url)
            return _wait(egs, asked)
        except KeyboardInterrupt:
            say("Nothing is stored here. If you have confirmed the code, revoke the token on the page Account.")
            raise


def has_browser() -> bool:
    """Tells whether a browser would open in front of the person: not on another machine, and not over the text of this terminal."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return bool(os.environ.get("BROWSER") or sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _has_it(egs: Client) -> bool:
    try:
        return "device" in egs.sign_in.get().ways
    except UnknownOperation:  # an older server
        return False


def _wait(egs: Client, asked: DeviceLogin) -> str:
    pause_s, is_told = asked.interval_s, False
    while True:
        time.sleep(pause_s)
        try:
            return egs.device_logins.take(device_code=asked.device_code).token or ""
        except AuthorizationPending:
            is_told = False
        except SlowDown:
            pause_s += SLOWER_BY_S
        except (Unreachable, ServerFault) as error:
            if time.time() > asked.expires_at.timestamp():
                raise
            if not is_told:
                say(f"{error} Trying again …")
            is_told = True


@contextmanager
def hidden_typing() -> Iterator[None]:
    """Reads a pasted token without showing it."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    hidden = [*before]
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)

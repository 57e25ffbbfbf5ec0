"""Ends the command at once on a Ctrl-C before it has changed anything or begun to watch, and says that nothing was asked for."""

from __future__ import annotations

import os
import signal
from types import FrameType


def begin() -> None:
    """Lets a Ctrl-C end the process at once, until `over`. Where it is ignored, as in the background, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def over() -> None:
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Interrupted before anything was asked for.\n")
    os._exit(130)

"""The main job, from estimate to release, typed at a real terminal, as docs/how-to/terminal.md shows it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.e2e.client.hub import Egs, Hub
from tests.e2e.client.tmux import Tmux
from tests.e2e.processes import ROOT

MANUAL = ROOT / "docs" / "how-to" / "terminal.md"
# Set it to write the manual's record anew.
RECORDS = "EGS_TRANSCRIPTS"
CHANGING = (
    (r"(?:[A-Z][a-z]{2} \d\d [A-Z][a-z]{2} )?\d\d:\d\d", "10:30"),  # in the evening a box ends on the next day
    (r"in \d+ (?:h(?: \d\d min)?|min|s)|\d+ s ago|(?<=planned )now|(?<=\()now|now(?= \()", "soon"),
    (r"\d h(?: \d\d min)? left", "2 h 59 min left"),
)
LINES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("egs gpr estimate --shape H100-80GB --nodes 2 --hours 3", ()),
    ("egs gpr create train --shape H100-80GB --nodes 2 --hours 3 --wait", ((r": \d+ steps?, last ", ""),)),
    ("egs gpr list", ()),
    ("egs gpr extend train 1h", ()),
    ("egs gpr release train --wait", ((r"\[y/N\]", "y"),)),
)


def steady(text: str) -> str:
    """Removes what differs each time: clock, spans, and where a long line is broken."""
    for pattern, same in CHANGING:
        text = re.sub(pattern, same, text)
    return " ".join(text.split())


def test_the_main_job_at_the_terminal_is_as_the_manual_shows_it(hub: Hub, egs: Egs) -> None:
    with Tmux(egs) as terminal:
        for line, then in LINES:
            terminal.type(line, then=then)
        record = terminal.shown().removeprefix("\n").removesuffix("$")

    if folder := os.environ.get(RECORDS):
        (Path(folder) / "terminal.txt").write_text(record)
    shown = re.search(r"```console\n(\$ egs gpr estimate.*?)```", MANUAL.read_text(), re.DOTALL)
    assert shown is not None
    assert steady(shown[1]) == steady(record)

"""The main job, from estimate to release, as docs/how-to/terminal.md shows it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.e2e.client.hub import Egs, Hub
from tests.e2e.processes import ROOT

MANUAL = ROOT / "docs" / "how-to" / "terminal.md"
# Set it to write the manual's record anew.
RECORDS = "EGS_TRANSCRIPTS"
CHANGING = (
    (r"(?:[A-Z][a-z]{2} \d\d [A-Z][a-z]{2} )?\d\d:\d\d", "10:30"),  # in the evening a box ends on the next day
    (r"in \d+ (?:h(?: \d\d min)?|min|s)|\d+ s ago|(?<=planned )now|(?<=\()now|now(?= \()", "soon"),
    (r"\d h(?: \d\d min)? left", "2 h 59 min left"),
)
LINES = (
    "gpr estimate --shape H100-80GB --nodes 2 --hours 3",
    "gpr create train --shape H100-80GB --nodes 2 --hours 3 --wait",
    "gpr list",
    "gpr release train --wait",
)


def steady(text: str) -> str:
    """Removes what differs each time: clock, spans, which step was seen last."""
    for pattern, same in CHANGING:
        text = re.sub(pattern, same, text)
    lines = [re.sub(r" {2,}", "  ", line).rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if not re.search(r" \d+ steps?, last ", line))


def test_the_main_job_at_the_terminal_is_as_the_manual_shows_it(hub: Hub, egs: Egs, tmp_path: Path) -> None:
    record = "".join(f"$ egs {line}\n{egs.run(*line.split())}\n" for line in LINES)

    if folder := os.environ.get(RECORDS):
        (Path(folder) / "terminal.txt").write_text(record)
    shown = re.search(r"```console\n(\$ egs gpr estimate.*?)```", MANUAL.read_text(), re.DOTALL)
    assert shown is not None
    assert steady(shown[1]).strip() == steady(record).strip()

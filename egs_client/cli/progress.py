"""Follows a GPR until it is active or over: live on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from egs_client.cli import early
from egs_client.cli.exits import say
from egs_client.cli.session import is_interactive
from egs_client.cli.words import by, counted, here, when, without_spans
from egs_client.errors import Ended, WaitedTooLong
from egs_client.gprs import ACTIVE, ENDED, PENDING_APPROVAL, PROVISIONING, QUEUED

if TYPE_CHECKING:
    from egs_client.models.gpr import GprDetail
    from egs_client.sync.client import Client

LOOK_S = 5.0  # without news, to draw its position and the time that is left


def follow(client: Client, gpr: GprDetail, *, until: Callable[[GprDetail], bool], for_s: float | None = None) -> GprDetail:
    """Returns it once `until` says so. Raises Ended, or WaitedTooLong: then it goes on waiting."""
    began_s = time.monotonic()
    with drawn() as draw:
        draw("\n".join(lines_of(gpr, client)))
        for found in client.watch_gpr(gpr.id, look_s=LOOK_S if for_s is None else min(for_s, LOOK_S)):
            gpr = found
            draw("\n".join(lines_of(gpr, client)))
            if until(gpr):
                return gpr
            if gpr.state in ENDED:
                break
            if for_s is not None and time.monotonic() - began_s > for_s:
                raise WaitedTooLong(f"{gpr.name} is still {gpr.state}. It stays: egs gpr watch {gpr.name}", gpr=gpr)
    raise Ended(f"{gpr.name} is {gpr.state}{f' ({gpr.end_reason})' if gpr.end_reason else ''}. See egs events --gpr {gpr.id}", gpr=gpr)


def lines_of(gpr: GprDetail, client: Client) -> Iterator[str]:
    """Tell its state, its place and its promise."""
    if gpr.state == PENDING_APPROVAL:
        yield f"{gpr.name}  {gpr.state}  {' '.join(gpr.approval_reasons)}"
    elif gpr.state == QUEUED:
        place = f"position {gpr.position}" if gpr.position else "no position"
        planned = f", planned {when(gpr.estimate.start_at)}" if gpr.estimate else ""
        yield f"{gpr.name}  {gpr.state}  {place}{planned}, promised by {by(gpr.promised_start_at)}"
        if gpr.explanation:
            yield f"  {here(gpr.explanation.sentence)}"
    elif gpr.state == PROVISIONING:
        yield f"{gpr.name}  {gpr.state}  {', '.join(node.node for node in gpr.nodes_assigned)}"
        yield from (f"  {line}" for line in steps_of(gpr, client))
    elif gpr.state == ACTIVE:
        yield f"{gpr.name}  {gpr.state}  on {', '.join(node.node for node in gpr.nodes_assigned)}, ends {when(gpr.ends_at)}"
    else:
        yield f"{gpr.name}  {gpr.state}{f'  {gpr.end_reason}' if gpr.end_reason else ''}"


def steps_of(gpr: GprDetail, client: Client) -> Iterator[str]:
    """Returns for each node how many steps are done, and the last one."""
    by_node: dict[str, list[str]] = {}
    for step in client.gprs.steps.list(gpr.id, page_size=500).all(limit=500):
        if step.stage == "entry":
            by_node.setdefault(step.node, []).append(f"{step.step} {'passed' if step.outcome == 'OK' else step.outcome.lower()}")
    yield from (f"{node}: {counted(len(steps), 'step')}, last {steps[-1]}" for node, steps in sorted(by_node.items()))


@contextmanager
def drawn() -> Iterator[Callable[[str], None]]:
    """Draws over what it has drawn, on standard error. Without a terminal it prints what is new."""
    early.over()
    if not is_interactive():
        told: set[str] = set()

        def draw(text: str) -> None:
            nonlocal told
            lines = {without_spans(line): line for line in text.splitlines()}
            for line in (line for plain, line in lines.items() if plain not in told):
                say(line)
            told = set(lines)

        yield draw
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text(""), console=Console(file=sys.stderr), refresh_per_second=4) as live:
        yield lambda text: live.update(Text(text), refresh=True)

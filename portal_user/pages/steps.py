"""The way in and the way out, step by step, over all nodes of a run, with what the nodes logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from egs.pages import words
from egs.pages.measures import measures_of
from egs.pages.parts import StepRow
from gpr.models import Gpr, GprState
from inventory.models import Reservation, StepResult
from worker_agent.protocol import Outcome
from worker_agent.steps import Milestone

LOG_NODES, LOG_CHARS = 50, 2_000


@dataclass(frozen=True, slots=True)
class StepPanel:
    """`hint`: how far it is, or how long it took."""

    title: str
    key: str
    hint: str
    steps: tuple[StepRow, ...]

    @property
    def is_over(self) -> bool:
        return all(step.state in {"passed", "warned"} for step in self.steps)


def step_panels(gpr: Gpr, nodes: Sequence[Reservation], results: Iterable[StepResult], *, zone: tzinfo) -> list[StepPanel]:
    """Of one run. `results` oldest first."""
    if not nodes:
        return []
    by_step: dict[str, list[StepResult]] = {}
    for result in results:
        by_step.setdefault(result.step, []).append(result)
    entry = [Milestone.CLAIM, *nodes[0].entry_steps, Milestone.OPEN]
    leave = [Milestone.CLOSE, *nodes[0].exit_steps, Milestone.RELEASE]
    on_the_way_in, on_the_way_out = gpr.state == GprState.PROVISIONING, gpr.state == GprState.EXITING
    made = [
        _panel("Entry steps", "entry", entry, by_step, nodes, is_running=on_the_way_in, zone=zone),
        _panel("Exit steps", "exit", leave, by_step, nodes, is_running=on_the_way_out, zone=zone),
    ]
    return made if on_the_way_out or any(step in by_step for step in leave) else made[:1]


def steps_done(panel: StepPanel) -> int:
    return sum(step.state in {"passed", "warned"} for step in panel.steps)


def _panel(
    title: str,
    key: str,
    steps: Sequence[str],
    by_step: dict[str, list[StepResult]],
    nodes: Sequence[Reservation],
    *,
    is_running: bool,
    zone: tzinfo,
) -> StepPanel:
    rows: list[StepRow] = []
    for step in steps:
        is_next = is_running and all(row.state in {"passed", "warned"} for row in rows)
        rows.append(_row(f"step-{key}-{step}", step, by_step.get(step, []), nodes, is_next=is_next, zone=zone))
    panel = StepPanel(title, key, "", tuple(rows))
    found = [result for step in steps for result in by_step.get(step, [])]
    hint = f"{steps_done(panel)} of {len(rows)} done"
    if found and panel.is_over:
        took_s = (max(result.ended_at for result in found) - min(result.started_at for result in found)).total_seconds()
        hint = f"{words.plural(len(nodes), 'node')}, all passed in {words.duration(took_s)}"
    return StepPanel(title, key, hint, tuple(rows))


def _row(id_: str, step: str, results: Sequence[StepResult], nodes: Sequence[Reservation], *, is_next: bool, zone: tzinfo) -> StepRow:
    last = {result.reservation_id: result for result in results}
    passed = sum(result.outcome == Outcome.OK for result in last.values())
    failed = len(last) - passed
    is_repeated = len(results) > len(last)
    if failed:
        state = "failed"
    elif passed == len(nodes):
        state = "warned" if is_repeated else "passed"
    else:
        state = "running" if is_next or passed else "waiting"
    took_s = (max(r.ended_at for r in results) - min(r.started_at for r in results)).total_seconds() if results else 0
    return StepRow(
        id=id_,
        state=state,
        name=words.step_name(step),
        note="passed at another attempt" if state == "warned" else "",
        figure=f"{passed} of {len(nodes)}" + (f", {failed} failed" if failed else "") if results or is_next else "",
        took=(words.duration(took_s) if took_s >= 1 else "under 1 s") if results else "",
        log=_log(results, nodes, zone),
        is_open=state == "failed",
        measures=measures_of(last.values(), {node.pk: node.node.name for node in nodes}),
    )


def _log(results: Sequence[StepResult], nodes: Sequence[Reservation], zone: tzinfo) -> str:
    names = {node.pk: node.node.name for node in nodes}
    lines = []
    for result in results[:LOG_NODES]:
        said = result.log.strip()[:LOG_CHARS] or ("passed" if result.outcome == Outcome.OK else result.outcome.lower())
        head = f"{result.ended_at.astimezone(zone):%H:%M:%S} {names.get(result.reservation_id, '')}"
        lines += [f"{head}  {line}" for line in said.splitlines()]
    if len(results) > LOG_NODES:
        lines.append(f"… and {len(results) - LOG_NODES} more")
    return "\n".join(lines)

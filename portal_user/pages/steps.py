"""The way in and the way out, step by step, over all nodes of a run, with what the nodes logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from uuid import UUID

from egs.pages import words
from egs.pages.measures import measures_of
from egs.pages.parts import StepRow
from gpr.models import Gpr, GprState
from gpr.services.replacing import box_of, spares_of
from inventory.models import Reservation, ReservationState, StepResult
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


def step_panels(gpr: Gpr, nodes: Sequence[Reservation], results: Sequence[StepResult], *, zone: tzinfo) -> list[StepPanel]:
    """Of one run: those of the box first, then those of spares and of what they replaced. `results` oldest first."""
    box = box_of(nodes)
    replaced_ids = {row.replaces_id for row in box}
    coming = [(row, _Way([row], results, zone)) for row in spares_of(nodes)]
    going = [(row, _Way([row], results, zone)) for row in nodes if row.pk in replaced_ids]
    return [
        *(_box_panels(gpr, _Way(box, results, zone)) if box else ()),
        *(way.entry(f"Spare {row.node.name}: entry steps", f"spare-{row.pk}", is_running=True) for row, way in coming),
        *(
            way.exit(f"Replaced {row.node.name}: exit steps", f"replaced-{row.pk}", is_running=row.state == ReservationState.HELD)
            for row, way in going
        ),
    ]


def _box_panels(gpr: Gpr, way: _Way) -> Iterator[StepPanel]:
    yield way.entry("Entry steps", "entry", is_running=gpr.state == GprState.PROVISIONING)
    is_leaving = gpr.state == GprState.EXITING
    if is_leaving or way.has_begun_to_leave:
        yield way.exit("Exit steps", "exit", is_running=is_leaving)


def steps_done(panel: StepPanel) -> int:
    return sum(step.state in {"passed", "warned"} for step in panel.steps)


class _Way:
    """In and out, of nodes that go together."""

    def __init__(self, nodes: Sequence[Reservation], results: Iterable[StepResult], zone: tzinfo) -> None:
        self._nodes, self._zone = nodes, zone
        self._by_step: dict[str, list[StepResult]] = {}
        node_ids = {node.pk for node in nodes}
        for result in results:
            if result.reservation_id in node_ids:
                self._by_step.setdefault(result.step, []).append(result)
        self._entry = [Milestone.CLAIM, *nodes[0].entry_steps, Milestone.OPEN]
        self._exit = [Milestone.CLOSE, *nodes[0].exit_steps, Milestone.RELEASE]

    @property
    def has_begun_to_leave(self) -> bool:
        return any(step in self._by_step for step in self._exit)

    def entry(self, title: str, key: str, *, is_running: bool) -> StepPanel:
        return self._panel(title, key, self._entry, is_running=is_running)

    def exit(self, title: str, key: str, *, is_running: bool) -> StepPanel:
        return self._panel(title, key, self._exit, is_running=is_running)

    def _panel(self, title: str, key: str, steps: Sequence[str], *, is_running: bool) -> StepPanel:
        rows: list[StepRow] = []
        for step in steps:
            is_next = is_running and all(row.state in {"passed", "warned"} for row in rows)
            rows.append(_row(f"step-{key}-{step}", step, self._by_step.get(step, []), self._nodes, is_next=is_next, zone=self._zone))
        panel = StepPanel(title, key, "", tuple(rows))
        found = [result for step in steps for result in self._by_step.get(step, [])]
        hint = f"{steps_done(panel)} of {len(rows)} done"
        if found and panel.is_over:
            hint = f"{words.plural(len(self._nodes), 'node')}, all passed in {words.duration(_took_s(found))}"
        return replace(panel, hint=hint)


def _took_s(results: Iterable[StepResult]) -> float:
    """Of the node that took longest: one that came later, as a spare, is not counted from when the others began."""
    spans: dict[UUID, tuple[datetime, datetime]] = {}
    for each in results:
        began_at, ended_at = spans.get(each.reservation_id, (each.started_at, each.ended_at))
        spans[each.reservation_id] = min(began_at, each.started_at), max(ended_at, each.ended_at)
    return max(((ended_at - began_at).total_seconds() for began_at, ended_at in spans.values()), default=0.0)


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
    took_s = _took_s(results)
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

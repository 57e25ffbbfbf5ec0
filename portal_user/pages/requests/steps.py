"""Entry and exit steps of a run over all nodes, with logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.pages import words
from core.pages.parts import StepRow
from gpr.models import Gpr, GprState
from gpr.replacement.services import box_of
from inventory.models import Reservation, ReservationState, StepResult
from portal_shared.parts.measures import measures_of
from protocol.agents.events import Outcome
from protocol.assignments import Desired
from protocol.nodes.steps import Milestone

LOG_NODES, LOG_CHARS = 50, 2_000
DONE = frozenset({"passed", "warned"})


@dataclass(frozen=True, slots=True)
class StepPanel:
    """`hint` says progress or duration."""

    title: str
    key: str
    hint: str
    steps: tuple[StepRow, ...]


def step_panels(
    gpr: Gpr, nodes: Sequence[Reservation], results: Sequence[StepResult], *, say: Callable[[datetime], str]
) -> list[StepPanel]:
    """Returns the box's panels, then those of spares and replaced nodes. `results` come oldest first."""
    box, replaced_ids = box_of(nodes), {row.replaces_id for row in nodes if row.joined_at is not None}
    spares = [row for row in nodes if row.replaces_id is not None and row.joined_at is None]
    going = [(row, _NodeSteps([row], results, say)) for row in nodes if row.pk in replaced_ids]
    return [
        *(_box_panels(gpr, _NodeSteps(box, results, say)) if box else ()),
        *(panel for row in spares for panel in _spare_panels(row, _NodeSteps([row], results, say))),
        *(
            way.exit(f"Replaced {row.node.name}: exit steps", f"replaced-{row.pk}", is_running=row.state == ReservationState.HELD)
            for row, way in going
        ),
    ]


def _box_panels(gpr: Gpr, way: _NodeSteps) -> Iterator[StepPanel]:
    yield way.entry("Entry steps", "entry", is_running=gpr.state == GprState.PROVISIONING)
    is_leaving = gpr.state == GprState.EXITING
    if is_leaving or way.has_begun_to_leave:
        yield way.exit("Exit steps", "exit", is_running=is_leaving)


def _spare_panels(row: Reservation, way: _NodeSteps) -> Iterator[StepPanel]:
    """Shows a spare that has not joined. When it leaves, its entry is shown only if it failed."""
    is_leaving = not row.is_coming or way.has_begun_to_leave
    entry = way.entry(f"Spare {row.node.name}: entry steps", f"spare-{row.pk}", is_running=not is_leaving)
    if not is_leaving or any(step.state == "failed" for step in entry.steps):
        yield entry
    if is_leaving:
        yield way.exit(f"Spare {row.node.name}: exit steps", f"leaving-{row.pk}", is_running=row.state == ReservationState.HELD)


def steps_done(panel: StepPanel) -> int:
    return sum(map(_is_done, panel.steps))


def _is_done(row: StepRow) -> bool:
    """A skipped step counts if it had nothing to measure."""
    return row.state in DONE or (row.state == "skipped" and bool(row.took))


class _NodeSteps:
    """Holds the steps of nodes that enter and leave together."""

    def __init__(self, nodes: Sequence[Reservation], results: Iterable[StepResult], say: Callable[[datetime], str]) -> None:
        self._nodes, self._say = nodes, say
        self._names: dict[UUID | None, str] = {node.pk: node.node.name for node in nodes}
        self._by_step: dict[str, list[StepResult]] = {}
        for result in results:
            if result.reservation_id in self._names:
                self._by_step.setdefault(result.step, []).append(result)
        self._entry = [Milestone.ISOLATE, *nodes[0].entry_steps, Milestone.OPEN]
        self._exit = [Milestone.CLOSE, *nodes[0].exit_steps, Milestone.RELEASE]

    @property
    def has_begun_to_leave(self) -> bool:
        return any(step in self._by_step for step in self._exit)

    def entry(self, title: str, key: str, *, is_running: bool) -> StepPanel:
        enters_no_more = self.has_begun_to_leave or all(node.desired == Desired.ABSENT for node in self._nodes)
        late_ids = frozenset(node.pk for node in self._nodes if node.joined_at is not None)
        return self._panel(title, key, self._entry, is_running=is_running, is_over=enters_no_more or self._is_free, late_ids=late_ids)

    def exit(self, title: str, key: str, *, is_running: bool) -> StepPanel:
        return self._panel(title, key, self._exit, is_running=is_running, is_over=self._is_free, late_ids=frozenset())

    @property
    def _is_free(self) -> bool:
        return all(node.state == ReservationState.RELEASED for node in self._nodes)

    def _panel(
        self, title: str, key: str, steps: Sequence[str], *, is_running: bool, is_over: bool, late_ids: frozenset[UUID]
    ) -> StepPanel:
        """`is_over`: open steps will not run any more. `late_ids`: nodes that began later than the others."""
        rows: list[StepRow] = []
        for step in steps:
            is_next = is_running and all(map(_is_done, rows))
            rest = "running" if is_next else "skipped" if is_over and not is_running else "waiting"
            rows.append(self._row(f"step-{key}-{step}", step, rest=rest, late_ids=late_ids))
        found = [result for step in steps for result in self._by_step.get(step, [])]
        return StepPanel(title, key, self._hint(rows, _took_s(found, late_ids)), tuple(rows))

    def _hint(self, rows: Sequence[StepRow], took_s: float) -> str:
        done, skipped = (sum(row.state in states for row in rows) for states in (DONE, {"skipped"}))
        if all(map(_is_done, rows)):
            passed = f"{done} passed, {skipped} skipped" if skipped else "all passed"
            return f"{words.plural(len(self._nodes), 'node')}, {passed} in {words.duration(took_s)}"
        return f"{done} done, {skipped} skipped" if skipped else f"{done} of {len(rows)} done"

    def _row(self, id_: str, step: str, *, rest: str, late_ids: frozenset[UUID]) -> StepRow:
        """`rest`: the state while nodes have no result."""
        results, count = self._by_step.get(step, []), len(self._nodes)
        last = {result.reservation_id: result for result in results}
        passed = sum(result.outcome == Outcome.OK for result in last.values())
        failed = len(last) - passed
        skipped_why = self._skipped_why(last.values())
        if failed:
            state = "failed"
        elif passed == count and skipped_why:
            state = "skipped"
        elif passed == count:
            state = "warned" if len(results) > len(last) else "passed"
        else:
            state = "running" if passed and rest == "waiting" else rest
        took_s = _took_s(results, late_ids)
        notes = {"warned": "passed at another attempt", "skipped": f"skipped: {skipped_why}" if skipped_why else ""}
        return StepRow(
            id=id_,
            state=state,
            name=words.step_name(step),
            note=notes.get(state, ""),
            figure=f"{passed} of {count}" + (f", {failed} failed" if failed else "") if results or rest == "running" else "",
            took=(words.duration(took_s) if took_s >= 1 else "under 1 s") if results else "",
            log=self._log(results),
            is_open=state == "failed",
            measures=measures_of(last.values(), self._names),
        )

    @staticmethod
    def _skipped_why(last: Iterable[StepResult]) -> str:
        """It is empty unless no node measured anything."""
        reasons = [result.skipped_why for result in last]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""

    def _log(self, results: Sequence[StepResult]) -> str:
        lines = [f"… and {len(results) - LOG_NODES} earlier"] if len(results) > LOG_NODES else []
        for result in results[-LOG_NODES:]:
            said = result.log.strip()[:LOG_CHARS] or ("passed" if result.outcome == Outcome.OK else result.outcome.lower())
            head = f"{self._say(result.ended_at)}:{result.ended_at:%S} {self._names[result.reservation_id]}"
            lines += [f"{head}  {line}" for line in said.splitlines()]
        return "\n".join(lines)


def _took_s(results: Iterable[StepResult], late_ids: frozenset[UUID]) -> float:
    """Nodes that began later are measured from their own start."""
    spans: dict[UUID | None, tuple[datetime, datetime]] = {}
    for each in results:
        whose = each.reservation_id if each.reservation_id in late_ids else None
        began_at, ended_at = spans.get(whose, (each.started_at, each.ended_at))
        spans[whose] = min(began_at, each.started_at), max(ended_at, each.ended_at)
    return max(((ended_at - began_at).total_seconds() for began_at, ended_at in spans.values()), default=0.0)

"""Shows measurements: failures and warnings one by one, others combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from core.pages.parts import MeasureRow
from core.words import plural
from inventory.models import CheckResult, StepResult
from protocol.nodes.check_limits import amount, says
from protocol.nodes.checks import Verdict

STATES = {Verdict.PASS: "passed", Verdict.WARN: "warned", Verdict.FAIL: "failed", Verdict.SKIP: "skipped"}
WORST_FIRST = [Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS]
ROWS_MAX = 100
GPU_CHARS = 12  # of the UUID


def measures_each(step: StepResult) -> tuple[MeasureRow, ...]:
    """Shows each GPU's value on one node."""
    return _rows([("", result) for result in step.results.all()], _listed)


def measures_of(steps: Iterable[StepResult], nodes: Mapping[UUID | None, str]) -> tuple[MeasureRow, ...]:
    """Shows ranges over all nodes. `nodes`: names by reservation."""
    return _rows([(nodes.get(step.reservation_id, ""), result) for step in steps for result in step.results.all()], _range)


def _rows(found: Iterable[tuple[str, CheckResult]], say: Callable[[Sequence[float]], str]) -> tuple[MeasureRow, ...]:
    groups: dict[tuple[str, str], list[tuple[str, CheckResult]]] = {}
    for node, result in found:
        groups.setdefault((result.verdict, result.what), []).append((node, result))
    rows: list[MeasureRow] = []
    for (verdict, _), alike in sorted(groups.items(), key=lambda each: WORST_FIRST.index(Verdict(each[0][0]))):
        if verdict in (Verdict.PASS, Verdict.SKIP):
            rows.append(_together([result for _, result in alike], say))
        else:
            rows += [_row(result, where=" ".join(part for part in (node, result.gpu_uuid[:GPU_CHARS]) if part)) for node, result in alike]
    return tuple(rows[:ROWS_MAX])


def _together(results: Sequence[CheckResult], say: Callable[[Sequence[float]], str]) -> MeasureRow:
    first = results[0]
    values = [result.value for result in results if result.value is not None]
    texts = {result.text for result in results}
    return MeasureRow(
        state=STATES[Verdict(first.verdict)],
        name=says(first.what),
        where=plural(len(results), "GPU" if first.gpu_uuid else "node"),
        measured=f"{say(values)} {first.unit}".strip() if values else "",
        bound=_bound(first),
        text=texts.pop() if len(texts) == 1 else "",
    )


def _row(result: CheckResult, *, where: str) -> MeasureRow:
    measured = "" if result.value is None else f"{amount(result.value)} {result.unit}".strip()
    return MeasureRow(STATES[Verdict(result.verdict)], says(result.what), where, measured, _bound(result), result.text)


def _range(values: Sequence[float]) -> str:
    """Returns e.g. `31 to 43`."""
    least, most = min(values), max(values)
    return amount(least) if least == most else f"{amount(least)} to {amount(most)}"


def _listed(values: Sequence[float]) -> str:
    """Returns e.g. `31, 43, 35`; equal values once."""
    return amount(values[0]) if len(set(values)) == 1 else ", ".join(map(amount, values))


def _bound(result: CheckResult) -> str:
    if result.threshold is None:
        return ""
    return f"at {'least' if result.is_least else 'most'} {amount(result.threshold)} {result.unit}".strip()

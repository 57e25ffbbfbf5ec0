"""Turns a replay into a report, and writes its files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from planner.causes import victims_of
from planner.promises.ranges import quantile
from planner.snapshot import Pool
from simulation.estimators import ESTIMATORS
from simulation.joblist import TraceJob
from simulation.replay import Replay, Run

# A promise counts as kept up to this much later.
MINUTE_S: Final = 60
BASIS: Final = "promise: the bound given at submission; p50 and p90: how past promises of the class turned out, steered by every outcome"
SCHEDULE_COLUMNS: Final = ("id", "start_s", "end_s", "nodes", "gpus_per_node")


def report(replay: Replay, pools: tuple[Pool, ...]) -> dict[str, Any]:
    """Return the JSON of `simulate`. Times in seconds, shares from 0 to 1; None where there is nothing to measure.

    The wait of a job is all its time in the queue. Bookings are reported apart, by how late they start.
    """
    runs = replay.runs
    begin_s = min((run.job.submit_s for run in runs), default=0)
    makespan_s = max(max((run.end_s for run in runs), default=0) - begin_s, 1)
    wait_s: dict[TraceJob, int] = defaultdict(int)
    late_s: dict[TraceJob, int] = defaultdict(int)
    for run in runs:
        (wait_s if run.job.booked_s is None else late_s)[run.job] += run.wait_s
    by_priority: dict[int, list[int]] = defaultdict(list)
    by_project: dict[str, list[int]] = defaultdict(list)
    for job, waited_s in wait_s.items():
        by_priority[job.priority].append(waited_s)
        by_project[job.project].append(waited_s)
    victims = victims_of(replay.evictions)
    failures = {
        "count": replay.failure_count,
        "repromised_count": len(replay.repromised),
        "killed_count": replay.killed_count,
    }
    return {
        "jobs": len(wait_s) + len(late_s),
        "wait_s": _spread(list(wait_s.values())),
        "wait_s_by_priority": {str(priority): {"jobs": len(waits), **_spread(waits)} for priority, waits in sorted(by_priority.items())},
        "wait_s_by_project": {project: {"jobs": len(waits), **_spread(waits)} for project, waits in sorted(by_project.items())},
        "utilization": _used_gpu_s(runs, pools) / (makespan_s * sum(n.gpu_count for p in pools for n in p.nodes)),
        "makespan_s": makespan_s,
        "estimate": _estimate(runs),
        "estimators": _estimators([run for run in runs if run.wait_s > 0]),
        "failures": failures,
        "evictions": {"count": len(replay.evictions), "victims": len(victims), "lost_gpu_s": sum(v.lost_gpu_s for v in victims)},
        "bookings": {"count": len(late_s) + len(replay.refused), "refused": len(replay.refused), "late_s": _spread(list(late_s.values()))},
        "idle_released_count": replay.idle_count,
        "plan_s": {"mean": _mean(replay.plan_s), "p99": quantile(replay.plan_s, 0.99), "max": max(replay.plan_s)},
    }


def schedule_csv(replay: Replay, pools: tuple[Pool, ...]) -> str:
    """Returns one line per box in order of start. `gpus_per_node` 0 (whole nodes) becomes the size of the nodes if they are alike."""
    sizes = _sizes(pools)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SCHEDULE_COLUMNS)
    for run in replay.runs:
        taken = {run.job.gpus_per_node or sizes[node] for node in run.nodes}
        gpus = taken.pop() if len(taken) == 1 else 0
        writer.writerow((run.job.id, run.start_s, run.end_s, " ".join(run.nodes), gpus))
    return text.getvalue()


def write_whole(path: Path, text: str) -> None:
    """Replace the file atomically. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp creates private files
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def to_json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _estimate(runs: Sequence[Run]) -> dict[str, Any]:
    """Margin and p90 cover requests that had to wait, the rest covers all."""
    told = [(run, run.promise_s) for run in runs if run.promise_s is not None]
    errors = [abs(run.start_s - promise_s) for run, promise_s in told]
    late_s = [run.start_s - promise_s for run, promise_s in told]
    waited = [(run, promise_s) for run, promise_s in told if run.wait_s > 0]
    margins = [promise_s - run.start_s for run, promise_s in waited]
    foretold = [(run, run.forecast) for run, _ in waited if run.forecast is not None]
    return {
        "basis": BASIS if told else "no promise",
        "waited": len(waited),
        "promise_kept": _share(late <= MINUTE_S for late in late_s),
        "repromised": sum(late > 0 for late in late_s) if told else None,
        "promised_wait_s": {"mean": _mean([promise_s - run.queued_s for run, promise_s in told])},
        "margin_s": {"p50": quantile(margins, 0.5), "p90": quantile(margins, 0.9)},
        "p50_coverage": _share(run.wait_s <= told.bounds_s[0] for run, told in foretold),
        "p90_coverage": _share(run.wait_s <= told.bounds_s[1] for run, told in foretold),
        "p90_width_s": {"p50": quantile([told.bounds_s[1] - told.bounds_s[0] for _, told in foretold], 0.5)},
        **_accuracy(errors),
    }


def _estimators(waited: Sequence[Run]) -> dict[str, Any]:
    """The promise is a bound and meant to be beaten; `expected` simulates the queue at arrival."""
    told: dict[str, list[float]] = {name: [] for name in (*ESTIMATORS, "promise", "expected", "p50")}
    for run in waited:
        for name, wait_s in _told(run).items():
            told[name].append(abs(run.wait_s - wait_s))
    return {"waited": len(waited), **{name: _accuracy(errors) for name, errors in told.items()}}


def _told(run: Run) -> dict[str, int]:
    told = dict(run.estimates)
    if run.promise_s is not None:
        told["promise"] = run.promise_s - run.queued_s
    if run.forecast is not None:
        told |= {"expected": run.forecast.expected_wait_s, "p50": run.forecast.bounds_s[0]}
    return told


def _accuracy(errors: Sequence[float]) -> dict[str, float | None]:
    return {
        "within_1min": _share(error <= MINUTE_S for error in errors),
        "within_10min": _share(error <= 10 * MINUTE_S for error in errors),
        "median_abs_error_s": quantile(errors, 0.5),
    }


def _sizes(pools: tuple[Pool, ...]) -> dict[str, int]:
    return {node.id: node.gpu_count for pool in pools for node in pool.nodes}


def _used_gpu_s(runs: Sequence[Run], pools: tuple[Pool, ...]) -> int:
    sizes = _sizes(pools)
    return sum((run.end_s - run.start_s) * sum(run.job.gpus_per_node or sizes[n] for n in run.nodes) for run in runs)


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    quantiles = {f"p{round(level * 100)}": quantile(values, level) for level in (0.5, 0.9, 0.99)}
    return {"mean": _mean(values), **quantiles, "max": max(values, default=None)}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _share(claims: Iterable[bool]) -> float | None:
    return _mean([float(claim) for claim in claims])

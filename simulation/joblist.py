"""Read node lists and job lists for a replay."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.feasibility import largest_that_fits
from planner.snapshot import Node, Pool, Quota, Request, Within

NODE_COLUMNS: Final = ("name", "cluster", "shape", "gpus")  # optional: rack and nvlink_domain, unique in the cluster
JOB_COLUMNS: Final = ("id", "submit_s", "reserve_s", "run_s", "nodes", "gpus_per_node", "priority")

QUOTA_COLUMNS: Final = ("owner", "shape", "guaranteed_gpus", "most_gpus")

WHOLE_MAX: Final = 10**11  # seconds of three thousand years, or their date


class BadList(ValueError):
    """The text names file, line and what is wrong."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Holds one line of a job list."""

    id: str
    submit_s: int
    reserve_s: int  # booked time
    run_s: int  # time really used
    node_count: int
    gpus_per_node: int  # 0: all of each node
    priority: int
    project: str
    pools: tuple[str, ...]
    slice: str = ""
    idle_from_s: int | None = None  # seconds of use after which it is idle; None: never
    may_evict: bool = False
    evictable: bool = True
    within: Within = Within.ANY
    booked_s: int | None = None  # when it is to start, exactly; None: as soon as can be
    handicaps: tuple[tuple[str, int], ...] = ()


def read_nodes(path: Path) -> tuple[Pool, ...]:
    """Return a pool for each cluster and shape, in file order. Raises BadList."""
    pools: dict[tuple[str, str], list[Node]] = defaultdict(list)
    seen: set[str] = set()
    for row in _rows(path, NODE_COLUMNS):
        cluster = row.text("cluster")
        rack, nvlink_domain = (f"{cluster}/{name}" if (name := row.optional(part)) else "" for part in ("rack", "nvlink_domain"))
        node = Node(row.new_id("name", seen), row.whole("gpus", at_least=1), rack=rack, nvlink_domain=nvlink_domain)
        pools[cluster, row.text("shape")].append(node)
    return tuple(Pool(f"{cluster}/{shape}", cluster, shape, tuple(nodes)) for (cluster, shape), nodes in pools.items())


def read_quotas(path: Path, pools: tuple[Pool, ...]) -> tuple[Quota, ...]:
    """An empty `most_gpus` is no limit."""
    seen: set[tuple[str, str]] = set()
    return tuple(_quota(row, {pool.shape for pool in pools}, seen) for row in _rows(path, QUOTA_COLUMNS))


def read_jobs(
    path: Path, pools: tuple[Pool, ...], *, early: bool, quotas: tuple[Quota, ...] = (), burst_gain_s: int = 0
) -> tuple[TraceJob, ...]:
    """Read jobs in order of submission, then of the file.

    Optional columns: `project`; `slice`, whose jobs run one at a time; `shape` and `clusters` (space separated), which restrict the pools;
    `home`, a cluster that is left only to save more than `burst_gain_s`; `idle_from_s`, when use stops; `may_evict` and `evictable`, 0 or
    1; `within`, `rack` or `nvlink`; `booked_s`, the exact start. Raises BadList, also for a job that could never start, and with `early`
    for one that runs longer than its box.
    """
    seen: set[str] = set()
    jobs = [_job(row, pools, seen, quotas, early=early, burst_gain_s=burst_gain_s) for row in _rows(path, JOB_COLUMNS)]
    return tuple(sorted(jobs, key=lambda job: job.submit_s))


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    values: dict[str, str]

    def text(self, column: str) -> str:
        value = self.values[column].strip()
        if not value:
            raise BadList(f"{self.where}: {column} is empty.")
        return value

    def optional(self, column: str) -> str:
        return self.values.get(column, "").strip()

    def flag(self, column: str, *, default: bool) -> bool:
        return self.whole(column, at_least=0) > 0 if self.optional(column) else default

    def new_id(self, column: str, seen: set[str]) -> str:
        value = self.text(column)
        if value in seen:
            raise BadList(f"{self.where}: {column} {value!r} appears twice.")
        seen.add(value)
        return value

    def whole(self, column: str, *, at_least: int) -> int:
        text = self.text(column)
        try:
            value = int(text)
        except ValueError:
            raise BadList(f"{self.where}: {column} is {text!r}, not a whole number.") from None
        if value > WHOLE_MAX:
            raise BadList(f"{self.where}: {column} is {text}, beyond {WHOLE_MAX}.")
        if value < at_least:
            raise BadList(f"{self.where}: {column} is {value}, but must be at least {at_least}.")
        return value


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            _check_columns(path, columns, reader.fieldnames)
            count = 0
            for count, values in enumerate(reader, start=1):  # noqa: B007 - counted for the check below
                yield _row(f"{path} line {reader.line_num}", values)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadList(f"{path}: {error}") from error
    if count == 0:
        raise BadList(f"{path}: it has no lines below its header.")


def _check_columns(path: Path, columns: tuple[str, ...], found: object) -> None:
    names = list(found) if isinstance(found, list) else []
    if not names:
        raise BadList(f"{path}: it is empty.")
    missing = [column for column in columns if column not in names]
    if missing:
        raise BadList(f"{path} line 1: column {', '.join(missing)} is missing.")


def _row(where: str, values: dict[str, str | None]) -> _Row:
    if None in values:
        raise BadList(f"{where}: it has more fields than the header.")
    for column, value in values.items():
        if value is None:
            raise BadList(f"{where}: {column} is missing.")
    return _Row(where, {name: value or "" for name, value in values.items()})


def _quota(row: _Row, shapes: set[str], seen: set[tuple[str, str]]) -> Quota:
    owner, shape, guaranteed = row.text("owner"), row.text("shape"), row.whole("guaranteed_gpus", at_least=0)
    most = row.whole("most_gpus", at_least=guaranteed) if row.optional("most_gpus") else None
    if shape not in shapes:
        raise BadList(f"{row.where}: no node has the shape {shape!r}.")
    if (owner, shape) in seen:
        raise BadList(f"{row.where}: {owner!r} has two quotas of {shape!r}.")
    seen.add((owner, shape))
    return Quota(owner, shape, guaranteed, most)


def _job(row: _Row, pools: tuple[Pool, ...], seen: set[str], quotas: tuple[Quota, ...], *, early: bool, burst_gain_s: int) -> TraceJob:
    job = TraceJob(
        id=row.new_id("id", seen),
        submit_s=row.whole("submit_s", at_least=0),
        reserve_s=row.whole("reserve_s", at_least=1),
        run_s=row.whole("run_s", at_least=1),
        node_count=row.whole("nodes", at_least=1),
        gpus_per_node=row.whole("gpus_per_node", at_least=0),
        priority=row.whole("priority", at_least=0),
        project=row.optional("project"),
        pools=(wanted := _pools_for(row, pools)),
        slice=row.optional("slice"),
        idle_from_s=row.whole("idle_from_s", at_least=0) if row.optional("idle_from_s") else None,
        may_evict=row.flag("may_evict", default=False),
        evictable=row.flag("evictable", default=True),
        within=_within(row),
        booked_s=row.whole("booked_s", at_least=0) if row.optional("booked_s") else None,
        handicaps=tuple((id_, burst_gain_s) for id_ in _away(row, pools, wanted)),
    )
    if job.booked_s is not None and job.booked_s < job.submit_s:
        raise BadList(f"{row.where}: job {job.id} is booked for {job.booked_s}, before it is submitted at {job.submit_s}.")
    if early and job.run_s > job.reserve_s:
        raise BadList(f"{row.where}: job {job.id} runs {job.run_s} s, longer than the {job.reserve_s} s it reserves.")
    _check_fits(row, pools, job, quotas)
    return job


def _pools_for(row: _Row, pools: tuple[Pool, ...]) -> tuple[str, ...]:
    shape, clusters = row.optional("shape"), set(row.optional("clusters").split())
    if unknown := clusters - {pool.cluster for pool in pools}:
        raise BadList(f"{row.where}: no node is in the cluster {min(unknown)!r}.")
    found = tuple(pool.id for pool in pools if shape in {"", pool.shape} and (not clusters or pool.cluster in clusters))
    if not found:
        raise BadList(f"{row.where}: no node has the shape {shape!r}{' in these clusters' if clusters else ''}.")
    return found


def _within(row: _Row) -> Within:
    try:
        return Within(row.optional("within"))
    except ValueError:
        raise BadList(f"{row.where}: within is {row.optional('within')!r}, neither rack nor nvlink.") from None


def _away(row: _Row, pools: tuple[Pool, ...], wanted: tuple[str, ...]) -> list[str]:
    home = row.optional("home")
    if home and home not in {pool.cluster for pool in pools}:
        raise BadList(f"{row.where}: no node is in the cluster {home!r}.")
    away = [pool.id for pool in pools if pool.id in wanted and pool.cluster != home]
    return away if home and len(away) < len(wanted) else []


def _check_fits(row: _Row, pools: tuple[Pool, ...], job: TraceJob, quotas: tuple[Quota, ...]) -> None:
    most = largest_that_fits(pools, request_of(job, rank=0, length_s=job.run_s, priority=0), quotas)
    if not most.fits:
        raise BadList(
            f"{row.where}: job {job.id} can never start: it wants {job.node_count} nodes with "
            f"{job.gpus_per_node or 'all'} GPUs each, but at most {most.node_count} with "
            f"{most.gpus_per_node} each could start."
        )


def request_of(job: TraceJob, *, rank: int, length_s: int, priority: int, is_new: bool = True) -> Request:
    """A job without a slice waits for no other job of its project. `is_new`: it has not run before; the rest of a booking has no fixed
    time.
    """
    return Request(
        id=job.id,
        slice=job.slice,
        project=job.project,
        priority=priority,
        rank=rank,
        node_count=job.node_count,
        gpus_per_node=job.gpus_per_node,
        length_s=length_s,
        pools=job.pools,
        earliest_start_s=job.booked_s or 0,
        is_fixed=is_new and job.booked_s is not None,
        may_evict=job.may_evict,
        evictable=job.evictable,
        within=job.within,
        handicaps=job.handicaps,
    )

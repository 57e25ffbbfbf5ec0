"""`simulate` replays a job list through the real planner on a simulated clock.

Lives here: options, and errors as a person reads them. The replay itself is simulation/replay.py.
"""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from planner.snapshot import Pool, Quota
from simulation.estimators import Estimators
from simulation.failures import Failure, draw_failures
from simulation.joblist import BadList, TraceJob, read_jobs, read_nodes, read_quotas
from simulation.replay import PLANNERS, POLICIES, STANDARD, Scheduler, replay
from simulation.report import report, schedule_csv, to_json, write_whole

# Options of the command that are fields of PlanPolicy.
POLICY_VALUES: Final = ("notice_s", "least_run_s", "eviction_gain_s", "break_from", "gang_patience")


class Command(BaseCommand):
    help = (
        "Replays a job list through the planner on a simulated clock and reports waits and how promises turned out. "
        "Policies: egs (ours, guarded shortest-first), conservative, easy, fifo, and two oracles of short waits: sjf and least-work. "
        "Past use of projects does not change the order here: use is not followed over time."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--nodes", type=Path, required=True, help="CSV with name, cluster, shape, gpus; and, if known, rack, nvlink_domain."
        )
        parser.add_argument(
            "--jobs",
            type=Path,
            required=True,
            help="CSV with id, submit_s, reserve_s, run_s, nodes, gpus_per_node, priority; "
            "and, if known, project, slice, shape, clusters (space separated), home, idle_from_s, may_evict, evictable (0: it is not), "
            "within (rack or nvlink), booked_s.",
        )
        parser.add_argument(
            "--quotas", type=Path, metavar="Q.csv", help="CSV with owner (project or slice), shape, guaranteed_gpus, most_gpus."
        )
        parser.add_argument(
            "--burst-gain-s", type=_seconds, default=1800, metavar="S", help="Outside its home a job runs only where that saves more."
        )
        _add_policy_values(parser)
        parser.add_argument("--policy", choices=tuple(POLICIES), default="egs")
        parser.add_argument("--early", action="store_true", help="Book reserve_s and release at run_s.")
        parser.add_argument("--ignore-priority", action="store_true", help="Treat all jobs as equal.")
        parser.add_argument("--fail-every-days", type=_above_0, metavar="DAYS", help="How long a node is up on average; without: for ever.")
        parser.add_argument("--repair-s", type=_seconds, default=14_400, metavar="S", help="How long a node that failed is away.")
        parser.add_argument("--seed", type=int, default=1, help="The seed of random failures.")
        parser.add_argument("--idle-timeout-s", type=_seconds, metavar="S", help="Take back a box that was idle for so long.")
        parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="Where to write the report.")
        parser.add_argument("--schedule", type=Path, metavar="S.csv", help="Write start, end and nodes of each request here.")

    def handle(self, *args: Any, **options: Any) -> None:
        self._check_outputs(options)
        try:
            pools = read_nodes(options["nodes"])
            quotas = read_quotas(options["quotas"], pools) if options["quotas"] else ()
            jobs = read_jobs(options["jobs"], pools, early=options["early"], quotas=quotas, burst_gain_s=options["burst_gain_s"])
        except BadList as error:
            raise CommandError(str(error)) from error
        done = replay(
            _scheduler(options, pools, quotas, jobs),
            jobs,
            early=options["early"],
            ignore_priority=options["ignore_priority"],
            clock=time.perf_counter,
            idle_timeout_s=options["idle_timeout_s"],
            failures=_failures(options, pools, jobs),
            estimators=Estimators(pools),
        )
        result = report(done, pools)
        try:
            write_whole(options["json"], to_json(result))
            if options["schedule"]:
                write_whole(options["schedule"], schedule_csv(done, pools))
        except OSError as error:
            raise CommandError(f"The result could not be written: {error}") from error
        self.stdout.write(f"{result['jobs']} jobs, mean wait {result['wait_s']['mean'] or 0:.0f} s")

    def _check_outputs(self, options: dict[str, Any]) -> None:
        """Checks the output paths before the work begins."""
        if options["schedule"] and options["schedule"].resolve() == options["json"].resolve():
            raise CommandError("--json and --schedule name the same file: one would overwrite the other.")
        for path in filter(None, (options["json"], options["schedule"])):
            if not path.parent.is_dir():
                raise CommandError(f"{path}: there is no such folder to write to.")


def _add_policy_values(parser: ArgumentParser) -> None:
    """The hub's settings of the same meaning are in docs/how-to/running.md."""
    group = parser.add_argument_group("values of the policy", "For the policies egs and conservative; --gang-patience only for egs.")
    for name, text in (
        ("notice_s", "Notice of an eviction."),
        ("least_run_s", "How long a box runs at least before it may be evicted."),
        ("eviction_gain_s", "No request is evicted for a start that is sooner by less."),
    ):
        standard = getattr(STANDARD, name)
        group.add_argument(f"--{name.replace('_', '-')}", type=_seconds_or_0, metavar="S", help=f"{text} Default: {standard}.")
    group.add_argument(
        "--break-from",
        type=int,
        metavar="PRIORITY",
        help="From this priority on a newcomer moves promises of lower ones; by default none does.",
    )
    group.add_argument(
        "--gang-patience",
        type=_share,
        metavar="SHARE",
        help="A gang that has waited for this share of the wait that it was promised is moved up where boxes end early. "
        f"Default: {STANDARD.gang_patience}.",
    )


def _scheduler(options: dict[str, Any], pools: tuple[Pool, ...], quotas: tuple[Quota, ...], jobs: tuple[TraceJob, ...]) -> Scheduler:
    policy = options["policy"]
    values = {name: options[name] for name in POLICY_VALUES if options[name] is not None}
    if policy not in PLANNERS:
        used = {
            "quotas": quotas,
            "bookings": any(job.booked_s is not None for job in jobs),
            "evictions": any(job.may_evict for job in jobs),
            "homes": any(job.handicaps for job in jobs),
            "values of the policy": values,
        }
        if unknown := [name for name, is_used in used.items() if is_used]:
            raise CommandError(f"{policy} knows no {' and no '.join(unknown)}. Those that do: {', '.join(sorted(PLANNERS))}.")
        return POLICIES[policy](pools)
    if "gang_patience" in values and policy != "egs":
        raise CommandError(f"{policy} moves no gang up: --gang-patience is of egs alone.")
    return POLICIES[policy](pools, quotas=quotas, policy=replace(STANDARD, **values))


def _failures(options: dict[str, Any], pools: tuple[Pool, ...], jobs: tuple[TraceJob, ...]) -> Iterator[Failure]:
    every_days = options["fail_every_days"]
    if every_days is None:
        return iter(())
    return draw_failures(pools, every_days=every_days, repair_s=options["repair_s"], seed=options["seed"], since_s=jobs[0].submit_s)


def _above_0(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text} is not above 0.")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text} is not from 0 to 1.")
    return value


def _seconds(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"{text} is less than a second.")
    return value


def _seconds_or_0(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ArgumentTypeError(f"{text} is below 0.")
    return value

"""Races start other processes on the tests' database together, each with its own connections.

They are forked from a server process in which Django is set up and nothing is connected: eight starts of Django take longer than
most races. Nothing here imports Django at the top, since that server imports this module before it is told its database.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[3]
SCRIPT_S = 600
_SETUP = "import django; django.setup()\n"


@dataclass(slots=True)
class Tally:
    """It counts what one process did: outcomes by name, and how long each try took. Anything unexpected ends the test."""

    outcomes: dict[str, int] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)

    def count(self, outcome: str, by: int = 1) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + by

    def attempt(self, work: Callable[[], object], *, expected: tuple[type[Exception], ...] = ()) -> Any:
        """Do it once; None when it was refused in an expected way. Any other exception is kept for the test to see."""
        began = time.perf_counter()
        answer = None
        try:
            answer = work()
            self.count("done")
        except expected as error:
            self.count(type(error).__name__)
        except Exception as error:
            self.unexpected.append(f"{type(error).__name__}: {error}")
        self.took_s.append(time.perf_counter() - began)
        return answer

    @property
    def try_count(self) -> int:
        return len(self.took_s)

    def p99_ms(self) -> float:
        return 1000 * sorted(self.took_s)[int(len(self.took_s) * 0.99)]


@dataclass(slots=True)
class Race:
    """A worker is given it: where to count, and where to meet the others."""

    number: int
    tally: Tally
    barrier: Any

    def meet(self) -> None:
        """Go on when all are here."""
        self.barrier.wait(timeout=300)


def together(*workers: tuple[str, Sequence[Any]], within_s: float = 600.0) -> list[Tally]:
    """Run `module:function(race, *arguments)` for each, all at once: they wait for each other before the first try."""
    context = _forkserver()
    barrier = context.Barrier(len(workers))
    answers: Any = context.Queue()
    environment = {**child_environment(), "EGS_REDIS_URL": "", "EGS_LOG_LEVEL": "CRITICAL"}
    children = [
        context.Process(target=_child, args=(number, name, tuple(arguments), environment, barrier, answers), daemon=True)
        for number, (name, arguments) in enumerate(workers)
    ]
    for child in children:
        child.start()
    try:
        found = dict(answers.get(timeout=within_s) for _ in children)
    finally:
        for child in children:
            child.join(timeout=1)
            child.kill()
    return [found[number] for number in range(len(children))]


def _forkserver() -> Any:
    """Its environment is that of its start: the database of this run's tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.promises.races.preloaded"])
    before = dict(os.environ)
    try:
        os.environ.update(child_environment(), EGS_REDIS_URL="", EGS_LOG_LEVEL="CRITICAL", DJANGO_SETTINGS_MODULE="egs.settings")
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def summed(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        for outcome, count in tally.outcomes.items():
            total.count(outcome, count)
        total.took_s += tally.took_s
        total.unexpected += tally.unexpected
        total.notes += tally.notes
    return total


def child_environment() -> dict[str, str]:
    """This process's, with the database that the tests run on instead of the one that they were given."""
    from django.db import connection

    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return {**os.environ, "EGS_DATABASE_URL": f"sqlite:///{name}"}
    return {**os.environ, "EGS_DATABASE_URL": urlsplit(os.environ["EGS_DATABASE_URL"])._replace(path=f"/{name}").geturl()}


def script(source: str, *, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A Python process with Django set up; the tests' database unless `env` says otherwise."""
    return subprocess.Popen(
        [sys.executable, "-c", _SETUP + source],
        cwd=ROOT,
        env={**(env or child_environment()), "DJANGO_SETTINGS_MODULE": "egs.settings"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_script(source: str, *, env: dict[str, str] | None = None) -> str:
    """Returns what it printed, or raises an AssertionError with its error output when it failed."""
    child = script(source, env=env)
    out, error = child.communicate(timeout=SCRIPT_S)
    assert child.returncode == 0, error
    return out


def _child(number: int, name: str, arguments: tuple[Any, ...], environment: dict[str, str], barrier: Any, answers: Any) -> None:
    tally = Tally()
    try:
        from django.db import connection

        assert environment["EGS_DATABASE_URL"].endswith(f"/{connection.settings_dict['NAME']}"), "another database than the tests'"
        module, _, function = name.partition(":")
        work = getattr(import_module(module), function)
        race = Race(number, tally, barrier)
        race.meet()
        work(race, *arguments)
    except BrokenBarrierError:
        pass  # another has said why
    except Exception as error:
        barrier.abort()
        tally.unexpected.append(f"the process died of {type(error).__name__}: {error}")
    answers.put((number, tally))

"""Fixtures of every test: the profile's database, people, and a small inventory."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import pytest
from _pytest.nodeid import NodeId
from django.conf import settings
from django.db import connection
from django.db.transaction import atomic, set_rollback
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from planner.compile import compile_all, is_compiled
from planner.kernels import compiled_here
from tests.databases import delete_all_rows
from tests.effort import DAY, IS_ROTATING, IS_SOAK, TURNS, examples, is_turn
from tests.migrated import copy_to_file, postgres_copy

ROTATION = pytest.StashKey[str]()
PROFILE = os.environ.get("EGS_TEST_PROFILE", "sqlite")
# How long an example takes on a machine that does other things as well says nothing of it.
hypothesis.settings.register_profile("untimed", examples(100), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

# These touch no database, so no run repeats them on PostgreSQL.
WITHOUT_DATABASE = (
    "tests/agent/",
    "tests/kube/",
    "tests/planner/",
    "tests/simulate/",
    "tests/browser/test_live.py",
    "tests/browser/test_styleguide.py",
    "tests/browser/test_swap.py",
)
# What the two databases do in different ways.
DIFFERENT_DATABASES = ("tests/promises/", "tests/lifecycle/test_upgrade.py")


def _belongs(item: pytest.Item) -> bool:
    """Says whether this run has this test: its database and its effort decide."""
    marks = {mark.name for mark in item.iter_markers()}
    if "soak" in marks and not IS_SOAK:
        return False
    if PROFILE == "sqlite":
        return "postgres_only" not in marks
    if "sqlite_only" in marks or item.nodeid.startswith(WITHOUT_DATABASE):
        return False
    return IS_SOAK or bool(marks & {"postgres_only", "both_databases"})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other runs. They are not skipped here: they do not belong here.

    A test on SQLite runs once. One that is marked `both_databases` runs on PostgreSQL as well, and in a soak all of them do.
    """
    belonging = [item for item in items if _belongs(item)]
    rotating = list(filter(_rotates, belonging)) if IS_ROTATING else []
    waiting = _waiting_for_another_day(rotating)
    kept = [item for item in belonging if item not in waiting]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
    if rotating:
        output = getattr(config, "workeroutput", {})
        output["rotation"] = config.stash[ROTATION] = f"{len(rotating) - len(waiting)} of {len(rotating)} tests that rotate ran"


def _rotates(item: pytest.Item) -> bool:
    """Tests that SQLite runs each day take turns on PostgreSQL, but for constraints and migrations. Those that run there alone do not."""
    marks = {mark.name for mark in item.iter_markers()}
    is_both = "both_databases" in marks and "postgres_only" not in marks
    is_again = PROFILE != "sqlite" and is_both and not item.nodeid.startswith(DIFFERENT_DATABASES)
    return ("rotates" in marks or is_again) and "daily" not in marks


def _waiting_for_another_day(rotating: list[pytest.Item]) -> set[pytest.Item]:
    """Each file keeps every third test. Files begin at different tests, or files with a single test would all have the same day.

    `rotates(0)`, `rotates(1)` and `rotates(2)` are for tests that start much to be on the same day, and what covers them on another.
    """
    places: dict[Path, Iterator[int]] = {item.path: count(crc32(item.path.stem.encode())) for item in rotating}
    return {item for item in rotating if not is_turn(next(iter(_given_place(item)), next(places[item.path])))}


def _given_place(item: pytest.Item) -> tuple[int, ...]:
    mark = item.get_closest_marker("rotates")
    return mark.args if mark else ()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Processes of xdist collect all the same; the one that starts them collects nothing."""
    if said := getattr(node, "workeroutput", {}).get("rotation"):
        node.config.stash[ROTATION] = said


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if said := config.stash.get(ROTATION, ""):
        turn = DAY.toordinal() % TURNS + 1
        terminalreporter.write_line(f"Rotation: {said}, turn {turn} of {TURNS}, on {DAY}.")


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """True: pytest-django takes the database that `django_db_modify_db_settings` has put there."""
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests of one group go to one process, and so do those of a file, which may share a world. On Kubernetes each is alone.

    xdist 3.8 writes the group where pytest 9.2 reads no id any more.
    """
    for item in session.items if session.config.getoption("loadgroup", default=False) else ():
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        if not groups and not item.nodeid.startswith("tests/kube/"):
            groups = [".".join(item.path.relative_to(session.config.rootpath).with_suffix("").parts)]
        if groups:
            item._id = NodeId.parse(f"{item.nodeid}@{'_'.join(groups)}")
    # Modules and collected tests stay until the process ends. Without them each round of the garbage collector is short,
    # and few rounds are enough: most objects of a test are gone without one.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Put a migrated database in place for this process. On SQLite it is a file, so that threads and processes share it."""
    default: dict[str, Any] = settings.DATABASES["default"]
    if PROFILE == "sqlite":
        path = tmp_path_factory.mktemp("database") / "egs.sqlite3"
        default.setdefault("TEST", {})["NAME"] = str(path)
        copy_to_file(path)
        yield
    else:
        name = default.get("TEST", {}).get("NAME") or f"test_{default['NAME']}"
        with postgres_copy(name, os.environ["EGS_DATABASE_URL"]):
            yield


@pytest.fixture(autouse=True, scope="session")
def _only_rows_are_deleted() -> Iterator[None]:
    """After a transactional test Django empties all tables and makes its permissions anew, which takes a second of a core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: delete_all_rows())
        yield


@pytest.fixture(autouse=True)
def _no_plan_is_remembered() -> None:
    """A test that is rolled back commits nothing, and the next one begins with other rows."""
    if (live := sys.modules.get("gpr.allocation.live")) is not None:
        live.live_forget()
    if (forecasts := sys.modules.get("gpr.promises.forecasts")) is not None:
        forecasts._Process.past = None, forecasts.ForecastRanges()


@pytest.fixture(autouse=True, scope="session")
def _secrets_are_looked_for() -> Iterator[None]:
    from tests.canaries import look_everywhere  # not before Django is set up

    with pytest.MonkeyPatch.context() as patch:
        look_everywhere(patch)
        yield


@pytest.fixture(autouse=True)
def _no_secret_leaks() -> Iterator[None]:
    from tests.canaries import LEAKS, read_logs

    read_logs()
    yield
    found = sorted(set(LEAKS))
    LEAKS.clear()
    assert not found, f"these secrets were told where nobody should read them: {found}"


@pytest.fixture(autouse=True, scope="session")
def _nobody_is_too_fast() -> None:
    """Tests call more often in a minute than people do; those of the limits set them."""
    settings.EGS_API_RATE_PER_MIN = settings.EGS_WORKSPACE_RATE_PER_MIN = settings.EGS_REFUSED_SIGN_INS_PER_MIN = 0


@pytest.fixture(autouse=True, scope="session")
def _static_files_are_found_when_asked_for() -> None:
    """Without it each test client lists all static files before its first request."""
    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(autouse=True, scope="session")
def _planner_is_compiled() -> None:
    """`make setup` did it; this is for whoever changed a kernel since."""
    if not is_compiled():
        compile_all()


@pytest.fixture(autouse=True)
def _no_kernel_is_compiled_late() -> Iterator[None]:
    """Somebody would wait for it in production, and all others for the planner's lock."""
    before = Counter(compiled_here())
    yield
    late = sorted(Counter(compiled_here()) - before)
    assert not late, f"compiled by this test instead of beforehand, as its arguments are not of the types of its annotations: {late}"


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """All tests of a file share a world in one transaction. It is rolled back after the last one."""
    with django_db_blocker.unblock(), atomic():
        # Django then lets durable transactions begin within it, as it does within those of its TestCase.
        connection.atomic_blocks[-1]._from_testcase = True  # type: ignore[attr-defined]
        yield
        set_rollback(True)


@pytest.fixture
def now() -> datetime:
    from tests.builders import NOW  # not before Django is set up

    return NOW

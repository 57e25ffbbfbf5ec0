"""One runner at a time, nobody waits, and a runner that is killed has let go."""

from __future__ import annotations

import signal
import threading
import time
from subprocess import Popen

import pytest
from django.db import connection, transaction

from core.locks import exclusive_lock, single_runner, take_shared_lock
from tests.promises.races.processes import script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

HOLD = """
import sys
from core.locks import take_shared_lock, exclusive_lock, single_runner
with single_runner("allocator") as mine:
    print("mine" if mine else "taken", flush=True)
    sys.stdin.readline()
"""


def answer_of(child: Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_the_second_is_told_so_at_once_and_does_not_wait() -> None:
    began = time.monotonic()

    with single_runner("allocator") as first, single_runner("allocator") as second, single_runner("allocator") as third:
        assert (first, second, third) == (True, False, False)

    assert time.monotonic() - began < 5
    with single_runner("allocator") as again:
        assert again


def test_locks_of_other_names_are_free() -> None:
    with single_runner("allocator") as one, single_runner("sweeper") as other:
        assert (one, other) == (True, True)


def test_an_error_inside_lets_go() -> None:
    with pytest.raises(ZeroDivisionError), single_runner("allocator"):
        raise ZeroDivisionError

    with single_runner("allocator") as mine:
        assert mine


def test_the_work_inside_commits_as_it_goes() -> None:
    """The lock is no transaction around the work."""
    with single_runner("allocator"):
        assert not connection.in_atomic_block


def test_of_many_threads_one_works() -> None:
    start, answers = threading.Barrier(8), []
    done = threading.Barrier(8)

    def run() -> None:
        start.wait()
        with single_runner("allocator") as mine:
            answers.append(mine)
            done.wait()
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [False] * 7 + [True]


def test_another_process_is_kept_out_until_the_holder_is_killed() -> None:
    """`kill -9`: no handler runs, and still the lock is free at once."""
    holder = script(HOLD)
    try:
        assert answer_of(holder) == "mine"
        with single_runner("allocator") as mine:
            assert not mine
        late = script(HOLD)
        assert answer_of(late) == "taken"
        late.communicate("\n")

        holder.send_signal(signal.SIGKILL)
        holder.wait()

        assert _free_within_s(2.0)
    finally:
        holder.kill()
        holder.communicate()


def _free_within_s(limit_s: float) -> bool:
    """The server notices a dead client a moment later than the client is dead."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        with single_runner("allocator") as mine:
            if mine:
                return True
        time.sleep(0.01)
    return False


@pytest.mark.postgres_only
def test_an_exclusive_lock_waits_for_shared_ones_and_holds_off_new_ones() -> None:
    passed, may_go = threading.Event(), threading.Event()

    def pass_and_stay() -> None:
        try:
            with transaction.atomic():
                take_shared_lock("submits")
                passed.set()
                may_go.wait(5)
        finally:
            connection.close()

    visitor = threading.Thread(target=pass_and_stay)
    visitor.start()
    assert passed.wait(5)
    threading.Timer(0.2, may_go.set).start()
    with exclusive_lock("submits"):
        assert may_go.is_set()
    visitor.join()
    with transaction.atomic():
        take_shared_lock("submits")


@pytest.mark.postgres_only
def test_a_shared_lock_does_not_wait_for_ever_for_an_exclusive_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps order; nobody may hang for it."""
    monkeypatch.setattr("core.locks.SHARED_WAIT_MOST_S", 0.2)

    began = time.monotonic()
    with exclusive_lock("submits"), transaction.atomic():
        take_shared_lock("submits")

    assert time.monotonic() - began >= 0.2

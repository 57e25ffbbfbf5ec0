"""One runner at a time, nobody waits, and a runner that is killed has let go."""

from __future__ import annotations

import signal
import threading
import time
from subprocess import Popen

import pytest
from django.db import connection

from core.locks import single_runner
from tests.promises.races.processes import script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

HOLD = """
import sys
from core.locks import single_runner
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

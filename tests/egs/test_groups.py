"""Work that many threads ask for at once is done by one of them for all, and each gets what is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from core import groups
from core.groups import Group
from tests.e2e.processes import START_S, wait_for

MANY = 20


class Desk:
    """Doubles numbers. The first that comes is held until the others wait."""

    def __init__(self, *, most: int = 8, together: Callable[[Sequence[int]], Sequence[int | Exception]] | None = None) -> None:
        self.batches: list[list[int]] = []
        self.alone: list[int] = []
        self.may_go = threading.Event()
        self._together = together or (lambda numbers: [2 * number for number in numbers])
        self.group: Group[int, int] = Group(together=self._all, alone=self._one, most=most)

    def _all(self, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append(list(numbers))
        return self._together(numbers)

    def _one(self, number: int) -> int:
        self.alone.append(number)
        assert self.may_go.wait(START_S)
        if number < 0:
            raise ValueError(f"{number} is below zero")
        return 2 * number

    def ask(self, *numbers: int) -> list[Future[int]]:
        with ThreadPoolExecutor(len(numbers)) as pool:
            asked = [pool.submit(self.group.do, numbers[0])]
            wait_for("the first", lambda: self.alone, within_s=START_S)
            asked += [pool.submit(self.group.do, number) for number in numbers[1:]]
            wait_for("the others", lambda: len(self.group._waiting) == len(numbers) - 1, within_s=START_S)
            self.may_go.set()
        return asked


def test_all_who_come_while_one_is_at_work_are_done_at_once_and_in_order() -> None:
    desk = Desk(most=MANY)

    assert sorted(asked.result() for asked in desk.ask(*range(MANY))) == [2 * number for number in range(MANY)]

    assert desk.alone == [0]
    assert [sorted(batch) for batch in desk.batches] == [list(range(1, MANY))]


def test_no_more_at_once_than_are_allowed() -> None:
    desk = Desk(most=8)

    desk.ask(*range(MANY))

    assert [len(batch) for batch in desk.batches] == [8, 8, 3]


def test_those_who_are_served_and_come_again_go_together_with_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in two halves by turns, one of which begins while the other is on its way back."""
    monkeypatch.setattr(groups, "COMES_S", START_S)
    desk, rounds, asking = Desk(most=MANY), 4, groups.MANY + 2

    def ask(again: int) -> None:
        for number in range(again):
            desk.group.do(number)

    with ThreadPoolExecutor(asking) as pool:
        asked = [pool.submit(ask, rounds + 1)]
        wait_for("the first", lambda: desk.alone, within_s=START_S)
        asked += [pool.submit(ask, rounds) for _ in range(asking - 1)]
        wait_for("the others", lambda: len(desk.group._waiting) == asking - 1, within_s=START_S)
        desk.may_go.set()
        for each in asked:
            each.result()

    assert [len(batch) for batch in desk.batches] == [asking] * rounds


@pytest.mark.parametrize("others", [0, 1, groups.MANY - 1])
def test_after_few_nobody_is_waited_for(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "COMES_S", float("inf"))
    desk = Desk()
    desk.ask(*range(others + 1))

    assert [desk.group.do(number) for number in range(3)] == [0, 2, 4]


def test_after_many_the_next_is_waited_for_no_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "COMES_S", 0.01)
    desk = Desk(most=MANY)
    desk.ask(*range(groups.MANY + 1))

    assert desk.group.do(7) == 14


def test_a_while_after_many_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "COMES_S", float("inf"))
    monkeypatch.setattr(groups, "RECENT_S", 0)
    desk = Desk(most=MANY)
    desk.ask(*range(groups.MANY + 1))

    assert desk.group.do(7) == 14


def test_who_is_interrupted_while_he_waits_for_others_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(most=MANY)
    desk.ask(*range(groups.MANY + 1))

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(desk.group._came, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt):
            desk.group.do(7)

    assert desk.group.do(8) == 16
    assert all(7 not in batch for batch in desk.batches[1:])


def test_an_error_is_told_to_the_one_whose_it_is() -> None:
    desk = Desk(together=lambda numbers: [ValueError(str(number)) if number == 3 else 2 * number for number in numbers])

    asked = desk.ask(0, 1, 2, 3, 4)

    assert [future.result() for future in asked if future is not asked[3]] == [0, 2, 4, 8]
    with pytest.raises(ValueError, match="3"):
        asked[3].result()


def test_when_all_of_it_breaks_each_does_its_own() -> None:
    def breaks(numbers: Sequence[int]) -> Any:
        raise RuntimeError("the connection was lost")

    desk = Desk(together=breaks)

    asked = desk.ask(0, 1, 2, -3)

    assert [future.result() for future in asked[:3]] == [0, 2, 4]
    with pytest.raises(ValueError, match="-3"):
        asked[3].result()
    assert len(desk.batches) == 1


def test_one_that_fails_alone_does_not_keep_the_next_from_its_turn() -> None:
    desk = Desk()
    desk.may_go.set()

    with pytest.raises(ValueError, match="-1"):
        desk.group.do(-1)

    assert desk.group.do(1) == 2

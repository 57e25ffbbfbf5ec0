"""Compares the local copy of a cluster's objects with a slow, obvious oracle: the whole history of the objects."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.effort import examples
from worker_agent.kube.api.objects import Meta
from worker_agent.kube.api.replica import Replica, Rewound

ELSEWHERE = ""
NAMES = st.sampled_from(["a", "b", "c"])


class Thing(msgspec.Struct, frozen=True):
    metadata: Meta


def thing(name: str, version: int) -> Thing:
    return Thing(metadata=Meta(name=name, resourceVersion=str(version)))


class Histories(RuleBasedStateMachine):
    """A server writes and deletes; the copy is told late, in order, and of any of its answers at any time or never.

    The oracle: an object is as the latest write says of those that the copy was told, by the stream or by an answer; and it is gone where
    the latest of them is its delete.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replica: Replica[Thing] = Replica()
        self.history: list[tuple[str, bool]] = []  # by version - 1: the name, and whether it was written (or deleted)
        self.told = 0  # up to this version by the stream
        self.answers: set[int] = set()  # versions of answers

    @rule(name=NAMES)
    def write(self, name: str) -> None:
        self.history.append((name, True))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.history.append((name, False))

    @rule()
    def write_elsewhere(self) -> None:
        """An object of another kind takes a version, and a bookmark tells of it."""
        self.history.append((ELSEWHERE, False))

    @precondition(lambda self: self.told < len(self.history))
    @rule()
    def tell_next(self) -> None:
        name, is_written = self.history[self.told]
        self.told += 1
        if name == ELSEWHERE:
            self.replica.reach(self.told)
        else:
            (self.replica.put if is_written else self.replica.drop)(thing(name, self.told))

    @rule(data=st.data())
    def tell_all_anew(self, data: st.DataObject) -> None:
        self.told = data.draw(st.integers(self.told, len(self.history)))
        self.replica.replace(
            {("", name): thing(name, version) for name, version in self._latest(set(range(1, self.told + 1))).items()}, self.told
        )

    @precondition(lambda self: any(is_written for _, is_written in self.history))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from([version for version, (_, is_written) in enumerate(self.history, 1) if is_written]))
        self.replica.learn(thing(self.history[version - 1][0], version))
        self.answers.add(version)

    @invariant()
    def it_shows_the_latest_it_was_told(self) -> None:
        shown = {name: int(obj.metadata.resourceVersion) for (_, name), obj in self.replica.objects().items()}
        assert shown == self._latest(set(range(1, self.told + 1)) | self.answers)

    def _latest(self, versions: set[int]) -> dict[str, int]:
        latest: dict[str, int] = {}
        for version in sorted(versions):
            name, is_written = self.history[version - 1]
            latest.pop(name, None)
            if is_written:
                latest[name] = version
        return latest


TestHistories = Histories.TestCase
TestHistories.settings = settings(examples(200), stateful_step_count=40)


def test_what_was_read_never_changes_and_the_serial_says_whether_a_new_look_is_worth_it() -> None:
    replica: Replica[Thing] = Replica()
    replica.put(thing("a", 1))
    before, serial = replica.objects(), replica.serial

    assert replica.objects() is before
    replica.learn(thing("a", 1))
    assert replica.serial == serial
    replica.put(thing("b", 2))

    assert set(before) == {("", "a")}
    assert set(replica.objects()) == {("", "a"), ("", "b")}
    assert replica.serial > serial


def test_versions_are_numbers_and_no_texts() -> None:
    replica: Replica[Thing] = Replica()
    replica.put(thing("a", 9))

    replica.learn(thing("a", 10))

    assert replica.objects()["", "a"].metadata.resourceVersion == "10"


def test_a_server_that_was_restored_from_a_backup_is_noticed_and_believed_once_all_is_read_anew() -> None:
    replica: Replica[Thing] = Replica()
    replica.put(thing("a", 9))
    replica.learn(thing("b", 10))

    for tell in (partial(replica.put, thing("c", 5)), partial(replica.drop, thing("a", 5)), partial(replica.reach, 5)):
        with pytest.raises(Rewound):
            tell()
    assert set(replica.objects()) == {("", "a"), ("", "b")}
    replica.replace({("", "a"): thing("a", 3)}, 5)

    assert [obj.metadata.resourceVersion for obj in replica.objects().values()] == ["3"]
    assert replica.version == 5

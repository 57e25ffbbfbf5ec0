"""One of the agent's replicas is at work: who holds the Lease, for how long, and who gets it next. Each goes by its own clock alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from worker_agent.cluster.base import Unavailable, WriteConflict
from worker_agent.kube.api import lease
from worker_agent.kube.api.client import Missing
from worker_agent.kube.api.lease import DURATION_S, IDLE_MOST_S, LOOK_EVERY_S, RENEW_EVERY_S, RENEW_WITHIN_S, Leadership


def nothing(_: str) -> None:
    """Nothing goes wrong."""


class FakeLease:
    """The object as an API server keeps it: a write of what was not the latest is a WriteConflict. `hook`: is called before each call."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {}
        self.version = 1
        self.hook: Callable[[str], None] = nothing

    def get(self, path: str, type_: Any, **_: Any) -> Any:
        self.hook("GET")
        meta = {"name": cluster_names.AGENT, "namespace": cluster_names.NAMESPACE, "resourceVersion": str(self.version)}
        return msgspec.convert({"metadata": meta, "spec": self.spec}, type_)

    def replace(self, path: str, body: Any, type_: Any) -> Any:
        self.hook("PUT")
        if body.metadata.resourceVersion != str(self.version):
            raise WriteConflict("409")
        self.spec, self.version = msgspec.to_builtins(body.spec), self.version + 1
        return body


class Time:
    """The clock of all replicas: it goes on while they wait."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Waits:
    """It stands for a threading.Event and uses that clock. A wait calls `then` and is over when that returns True."""

    def __init__(self, time: Time, then: Callable[[], bool]) -> None:
        self._time, self._then = time, then
        self._is_set = False
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self._time.now_s += timeout_s
        self._is_set = self._is_set or self._then()
        return self._is_set


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(lease, "time", made)
    return made


@pytest.fixture
def api() -> FakeLease:
    return FakeLease()


def replica(api: FakeLease, identity: str) -> Leadership:
    return Leadership(api, identity=identity, note=lambda *_: None)  # type: ignore[arg-type]


def tries(leadership: Leadership, time: Time, *, for_s: float) -> bool:
    until_s = time.now_s + for_s
    return leadership.acquire(Waits(time, lambda: time.now_s >= until_s))  # type: ignore[arg-type]


def keeps(leadership: Leadership, time: Time, monkeypatch: pytest.MonkeyPatch, *, for_s: float, idle_s: float = 0.0) -> bool:
    until_s, lost = time.now_s + for_s, threading.Event()
    monkeypatch.setattr(leadership, "_is_over", Waits(time, lambda: time.now_s >= until_s))
    leadership.keep(lost, lambda: idle_s)
    assert lost.is_set() == leadership.is_lost
    return not leadership.is_lost


def test_whoever_comes_first_holds_it_and_is_written_down(api: FakeLease, time: Time) -> None:
    assert tries(replica(api, "one"), time, for_s=0.0)

    assert (api.spec["holderIdentity"], api.spec["leaseDurationSeconds"], api.spec["leaseTransitions"]) == ("one", 10, 1)
    assert api.spec["acquireTime"] == api.spec["renewTime"]


def test_another_waits_while_it_is_renewed(api: FakeLease, time: Time) -> None:
    one, two = replica(api, "one"), replica(api, "two")
    tries(one, time, for_s=0.0)
    renewals = 0

    def renew() -> bool:
        nonlocal renewals
        renewals += 1
        assert one._take()
        return renewals == 100

    assert not two.acquire(Waits(time, renew))  # type: ignore[arg-type]
    assert api.spec["holderIdentity"] == "one"
    assert api.spec["leaseTransitions"] == 1


def test_it_is_over_when_nobody_renewed_it_for_its_duration_since_the_other_first_saw_it(api: FakeLease, time: Time) -> None:
    """Its stamps do not count: the clock of who wrote them may be wrong by years."""
    tries(replica(api, "one"), time, for_s=0.0)
    api.spec["renewTime"] = "2001-01-01T00:00:00.000000Z"
    two = replica(api, "two")

    assert not tries(two, time, for_s=DURATION_S - LOOK_EVERY_S)
    assert tries(two, time, for_s=2 * LOOK_EVERY_S)
    assert (api.spec["holderIdentity"], api.spec["leaseTransitions"]) == ("two", 2)


def test_it_is_waited_for_as_long_as_its_holder_asked(api: FakeLease, time: Time) -> None:
    api.spec = {"holderIdentity": "of a later version", "leaseDurationSeconds": 60}
    two = replica(api, "two")

    assert not tries(two, time, for_s=59.0)
    assert tries(two, time, for_s=2.0)


def test_of_two_that_take_it_at_once_one_has_it(api: FakeLease, time: Time) -> None:
    one, two = replica(api, "one"), replica(api, "two")

    def two_is_quicker(call: str) -> None:
        if call == "PUT":
            api.hook = nothing
            assert tries(two, time, for_s=0.0)

    api.hook = two_is_quicker

    assert not tries(one, time, for_s=0.0)
    assert api.spec["holderIdentity"] == "two"


def test_a_restarted_replica_is_another_and_waits_for_the_end_of_its_own_lease(api: FakeLease, time: Time) -> None:
    tries(replica(api, "pod-1-aa"), time, for_s=0.0)

    again = replica(api, "pod-1-bb")

    assert not tries(again, time, for_s=DURATION_S - LOOK_EVERY_S)
    assert tries(again, time, for_s=2 * LOOK_EVERY_S)


@pytest.mark.parametrize("error", [Unavailable("away"), Missing("not installed")])
def test_a_candidate_that_gets_no_answer_asks_on(api: FakeLease, time: Time, error: Exception) -> None:
    def fails(_: str) -> None:
        if time.now_s < 1020.0:
            raise error

    api.hook = fails

    assert tries(replica(api, "one"), time, for_s=30.0)
    assert time.now_s == 1020.0


def test_one_that_is_to_stop_waits_no_longer(api: FakeLease, time: Time) -> None:
    tries(replica(api, "one"), time, for_s=0.0)

    assert not tries(replica(api, "two"), time, for_s=1.0)


def test_it_is_kept_for_as_long_as_it_is_renewed(api: FakeLease, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replica(api, "one")
    tries(one, time, for_s=0.0)

    assert keeps(one, time, monkeypatch, for_s=3600.0)
    assert api.version == 2 + 3600 / RENEW_EVERY_S - 1
    assert api.spec["acquireTime"] < api.spec["renewTime"]


def test_answers_that_fail_to_come_for_a_moment_cost_nobody_the_lease(api: FakeLease, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replica(api, "one")
    tries(one, time, for_s=0.0)

    def fails(_: str) -> None:
        if time.now_s < 1000.0 + RENEW_WITHIN_S:
            raise Unavailable("away")

    api.hook = fails

    assert keeps(one, time, monkeypatch, for_s=60.0)


def test_whoever_cannot_renew_it_stops_before_another_begins(api: FakeLease, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = replica(api, "one"), replica(api, "two")
    tries(one, time, for_s=0.0)
    tries(two, time, for_s=0.0)  # it has seen it as late as that

    def fails(_: str) -> None:
        raise Unavailable("away")

    api.hook = fails
    assert not keeps(one, time, monkeypatch, for_s=60.0)
    stopped_s = time.now_s
    api.hook = nothing

    assert stopped_s < 1000.0 + DURATION_S
    assert not tries(two, time, for_s=1000.0 + DURATION_S - stopped_s - LOOK_EVERY_S)
    assert tries(two, time, for_s=2 * LOOK_EVERY_S)


def test_whoever_slept_through_its_end_finds_another_and_stops(api: FakeLease, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = replica(api, "one"), replica(api, "two")
    tries(one, time, for_s=0.0)
    tries(two, time, for_s=60.0)

    assert not keeps(one, time, monkeypatch, for_s=60.0)
    assert api.spec["holderIdentity"] == "two"


def test_one_that_hangs_in_its_work_gives_the_other_its_turn(api: FakeLease, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replica(api, "one")
    tries(one, time, for_s=0.0)

    assert not keeps(one, time, monkeypatch, for_s=60.0, idle_s=IDLE_MOST_S)
    assert api.version == 2  # not once more


def test_one_that_ends_in_good_order_leaves_it_to_the_next_at_once(api: FakeLease, time: Time) -> None:
    one, two = replica(api, "one"), replica(api, "two")
    tries(one, time, for_s=0.0)
    tries(two, time, for_s=0.0)

    one.give_up()

    assert api.spec["holderIdentity"] == ""
    assert tries(two, time, for_s=0.0)


def test_nobody_gives_up_what_is_another_s_by_now(api: FakeLease, time: Time) -> None:
    one, two = replica(api, "one"), replica(api, "two")
    tries(one, time, for_s=0.0)
    tries(two, time, for_s=60.0)

    one.give_up()

    assert api.spec["holderIdentity"] == "two"


def test_one_that_cannot_give_it_up_ends_all_the_same(api: FakeLease, time: Time) -> None:
    one = replica(api, "one")
    tries(one, time, for_s=0.0)

    def fails(_: str) -> None:
        raise Unavailable("away")

    api.hook = fails
    one.give_up()

    assert api.spec["holderIdentity"] == "one"

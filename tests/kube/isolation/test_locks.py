"""Gate, taint, box and guard: with any one of them gone the other three still keep red off blue's node. Nor does a restart open a gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pytest

from protocol import cluster_names
from tests.e2e.processes import wait_for
from tests.kube.api import outage
from tests.kube.callers import DONE, Answer
from tests.kube.cluster import SOON_S, Object
from tests.kube.isolation.attacks import ATTACKS
from tests.kube.isolation.attacks.attack import Attacker, binding
from tests.kube.isolation.attacks.entering import GATE_ATTACKS, TOLERATION_ATTACKS
from tests.kube.policies import MUTATING_BINDINGS, VALIDATING, tried_again_and_again, without, without_rules
from tests.kube.wire import MERGE
from tests.kube.world import BLUE_GPR, NODE_BLUE, RED_GPR, World, is_gated, pod, pods_path, scheduling_reason

ON_BLUE = {"kubernetes.io/hostname": NODE_BLUE}
NODE_PATH = f"/api/v1/nodes/{NODE_BLUE}"


@pytest.fixture
def made(world: World) -> Iterator[Callable[..., str]]:
    """Makes a pod of red that wants blue's node. Its path; it goes at the end."""
    paths: list[str] = []

    def make(gpus: int | None, *, is_lifted: bool = False) -> str:
        name = f"lock-{len(paths)}"
        paths.append(pods_path("red", name))
        world.people["u"].make(pods_path("red"), pod(name, gpus, nodeSelector=ON_BLUE))
        if is_lifted:
            world.lift("red", name, gpr=RED_GPR)
        return name

    yield make
    for path in paths:
        world.admin.call("DELETE", path, is_dry=False, gracePeriodSeconds="0")


def bound_by_scheduler(world: World, name: str) -> str:
    """Returns what a scheduler with an old view of blue's node comes to."""
    return world.scheduler.call("POST", pods_path("red", name, "binding"), binding(name)).outcome


# --- each lock by itself: all that belongs to it, and nothing of the others


@contextmanager
def no_gate(world: World) -> Iterator[None]:
    with without(world, f"{MUTATING_BINDINGS}/egs-gate"), without_rules(world, "the scheduling gate egs.io/gpr"):
        yield


@contextmanager
def no_taint(world: World) -> Iterator[None]:
    """The taint is off, and no policy refuses tolerations of it."""
    index = [taint["key"] for taint in world.admin.get(NODE_PATH)["spec"]["taints"]].index(cluster_names.TAINT)
    world.agent.patch(NODE_PATH, [{"op": "remove", "path": f"/spec/taints/{index}"}])
    try:
        with without_rules(world, "tolerations without a key"):
            yield
    finally:
        taint = {"key": cluster_names.TAINT, "value": cluster_names.box_of(BLUE_GPR, 1), "effect": cluster_names.TAINT_EFFECT}
        world.agent.patch(NODE_PATH, {"spec": {"taints": [taint]}}, kind=MERGE)


@contextmanager
def no_box(world: World) -> Iterator[None]:
    """The victim's node bears the attacker's box, too: the selector of a lifted pod keeps it off no longer. Nor is any selector refused."""
    box = cluster_names.pointer("metadata", "labels", cluster_names.box_label(RED_GPR))
    world.agent.patch(NODE_PATH, [{"op": "add", "path": box, "value": "1"}])
    try:
        with without_rules(world, "a nodeSelector on node-restriction.kubernetes.io/egs-"):
            yield
    finally:
        world.agent.patch(NODE_PATH, [{"op": "remove", "path": box}])


def no_guard(world: World) -> AbstractContextManager[None]:
    return without(world, f"{VALIDATING}/egs-bind")


LOCKS = {"the gate": no_gate, "the taint": no_taint, "the box": no_box, "the guard": no_guard}

# How attacks end without it that end otherwise with it, of one who has all rights in the namespace: they get past admission, or another
# lock stops them there. All others end as ever.
ENDS: dict[str, dict[str, str]] = {
    "the gate": {
        **{attack.tries: DONE for attack in ATTACKS if attack.end("o") == "gated"},
        **{attack.tries: DONE for attack in GATE_ATTACKS if attack.opens},
        "a GPU pod with nodeName": "egs-pod",
    },
    "the taint": {attack.tries: DONE for attack in TOLERATION_ATTACKS if attack.end("o") == "egs-pod"},
    "the box": dict.fromkeys(["a selector on the victim's workspace", "a selector on the victim's box, later"], DONE),
    "the guard": {},
}


@dataclass(frozen=True, slots=True)
class Insistent(Attacker):
    """The pods that get in are made for good, and want the victim's node, by the cluster's scheduler: one of their own may bind nothing."""

    names: list[str] = field(default_factory=list)

    def create(self, body: Object) -> Answer:
        name = f"insists-{len(self.names)}"
        wants = {"nodeSelector": {**body["spec"].get("nodeSelector", {}), **ON_BLUE}, "schedulerName": "default-scheduler"}
        metadata = {**body["metadata"], "name": name}
        answer = self.caller.call(
            "POST", pods_path(self.namespace), {**body, "metadata": metadata, "spec": {**body["spec"], **wants}}, is_dry=False
        )
        self.names.extend([name] if answer.outcome == DONE else [])
        return answer

    def pods(self, world: World) -> list[Object]:
        """Those that are there: one that says that the victim's node owns it is collected."""
        return [each for each in world.admin.get(pods_path(self.namespace))["items"] if each["metadata"]["name"] in self.names]


@pytest.mark.parametrize("lock", LOCKS)
def test_without_one_lock_all_attacks_end_as_ever_but_those_that_it_stops_and_these_come_no_further_than_the_next(
    lock: str, world: World
) -> None:
    attacker, insistent = Attacker(world.people["o"], "red"), Insistent(world.people["o"], "red")
    with LOCKS[lock](world):
        tried = [attack for attack in ATTACKS if attack.end("o")]
        ends = {attack.tries: attack.outcome(attacker) for attack in tried}
        expected = {attack.tries: attack.expected(world.cluster)["o"] for attack in tried}
        expected |= {tries: {end} for tries, end in ENDS[lock].items()}
        assert {tries: end for tries, end in ends.items() if end not in expected[tries]} == {}
        try:
            for attack in tried:
                if attack.tries in ENDS[lock]:
                    attack.act(insistent)
            wait_for("all tried", lambda: all(map(scheduling_reason, insistent.pods(world))), within_s=SOON_S)
            assert [each for each in insistent.pods(world) if each["spec"].get("nodeName")] == []
        finally:
            for name in insistent.names:
                world.admin.call("DELETE", pods_path("red", name), is_dry=False, gracePeriodSeconds="0")
    assert world.running("blue", "victim")["spec"]["nodeName"] == NODE_BLUE


def test_without_the_gate_the_taint_keeps_pods_off_and_the_guard_a_stale_scheduler(world: World, made: Callable[..., str]) -> None:
    with no_gate(world):
        name = made(1)
        assert not is_gated(world.refused_by_scheduler("red", name))
        assert bound_by_scheduler(world, name) == "egs-bind"
        assert world.people["o"].call("POST", pods_path("red", name, "binding"), binding(name)).outcome in {"egs-bind", "egs-binder"}


def test_without_the_taint_gate_and_box_keep_gpu_pods_off_and_the_guard_all_others(world: World, made: Callable[..., str]) -> None:
    with no_taint(world):
        waiting, lifted, cpu = made(1), made(1, is_lifted=True), made(None)

        # The scheduler tries, and is refused.
        world.pod_once("red", cpu, "is not bound", lambda found: scheduling_reason(found) == "SchedulerError")
        assert not world.node_of("red", cpu)
        assert not world.refused_by_scheduler("red", lifted)["spec"].get("nodeName")
        assert scheduling_reason(world.admin.get(pods_path("red", waiting))) == "SchedulingGated"
        assert bound_by_scheduler(world, lifted) == "egs-bind"


def test_without_the_box_on_the_node_the_taint_keeps_lifted_pods_off_and_the_guard_a_stale_scheduler(
    world: World, made: Callable[..., str]
) -> None:
    with no_box(world):
        lifted = made(1, is_lifted=True)

        world.refused_by_scheduler("red", lifted)
        assert bound_by_scheduler(world, lifted) == "egs-bind"


def test_without_the_guard_box_and_taint_keep_lifted_pods_off_and_only_a_stale_scheduler_gets_through(
    world: World, made: Callable[..., str]
) -> None:
    lifted = made(1, is_lifted=True)
    with no_guard(world):
        world.refused_by_scheduler("red", lifted)
        assert world.people["o"].call("POST", pods_path("red", lifted, "binding"), binding(lifted)).outcome == "egs-binder"
        # Which is what the guard is for.
        assert bound_by_scheduler(world, lifted) == DONE
    assert bound_by_scheduler(world, lifted) == "egs-bind"


def test_a_node_that_is_taken_from_a_workspace_is_closed_to_it_at_once(world: World, made: Callable[..., str]) -> None:
    lifted = made(1, is_lifted=True)
    blue = world.admin.get(cluster_names.GUARD_PATH)["spec"]["nodes"][NODE_BLUE]
    try:
        outcomes = []
        for value in ("@7", "", f"@8,{cluster_names.SHARED}", blue):
            world.guard(NODE_BLUE, value)
            wait_for("the guard", lambda: bound_by_scheduler(world, lifted) == "egs-bind", within_s=SOON_S)
            outcomes.append(bound_by_scheduler(world, lifted))
        assert outcomes == ["egs-bind"] * 4
    finally:
        world.guard(NODE_BLUE, blue)


# --- while the API server restarts


def test_nothing_gets_through_while_the_api_server_is_killed_and_starts(world: World) -> None:
    with tried_again_and_again(world) as (plain, forbidden):
        with outage.without(world.cluster, "kube-apiserver"):
            pass
        before = len(plain), len(forbidden)

        def is_as_before() -> bool:
            refused = sum(answer.outcome == "egs-pod" for answer in forbidden[before[1] :])
            return refused > 20 and any(answer.outcome == DONE for answer in plain[before[0] :])

        wait_for("answers as before", is_as_before, within_s=SOON_S)

    assert all(is_gated(answer.body) for answer in plain if answer.outcome == DONE)
    assert DONE not in {answer.outcome for answer in forbidden}

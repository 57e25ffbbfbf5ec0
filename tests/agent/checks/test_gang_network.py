"""The check between the nodes of a box: who takes it together, which pair failed, who is at fault, and whose RDMA ports differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import pytest

from protocol.assignments import Assignment, Phase
from protocol.nodes.checks import CheckResult, Verdict
from protocol.nodes.steps import EntryStep
from tests.agent.checks.test_probes import call
from tests.agent.stage import Stage, small_fleet
from tests.kube.checks.healthy import RDMA_PORT
from worker_agent.boxes.gangs import Gang, Gangs
from worker_agent.boxes.state import Member, Progress
from worker_agent.cluster.base import NodeState, StepCall, StepProgress, StepStatus
from worker_agent.kube.checks.gang_logs import PodOutput
from worker_agent.kube.checks.gang_verdicts import gang_network, in_one, ring
from worker_agent.kube.checks.verdicts import Unreadable

PASS, WARN, FAIL, SKIP = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIP
STEPS = ("node_ready", "gpu_count", "gang_network")
TIMED_OUT = {"error": "timed out"}
NOT_FOUND = {"error": "Name or service not known", "is_found": False}


def words(index: int, count: int, *, bad: Mapping[tuple[int, int], Any] | None = None, ports: Mapping[str, Any] | None = None) -> PodOutput:
    """Returns what the pod of this index says where all is well but the pairs of `bad`. `ports`: by name, what is not as on a good one."""
    peers = {peer: (bad or {}).get((index, peer), {"ms": 0.2}) for peer in ring(index, count, 2)}
    files = {
        f"/sys/class/infiniband/{name}/ports/1/{file}": text
        for name, differs in (ports or {}).items()
        for file, text in (RDMA_PORT | differs).items()
    }
    return PodOutput(index=index, node=f"node-{index}", text=json.dumps({"gang": {"index": index, "peers": peers}, "files": files}))


def results(own: int, said: list[PodOutput], *, count: int) -> list[CheckResult]:
    names = tuple(f"node-{number}" for number in range(count))
    return gang_network(call(EntryStep.GANG_NETWORK, node=own, gang=names), said, fan_out=2)


def verdicts_by_node(said: list[PodOutput], *, count: int) -> list[set[Verdict]]:
    return [{each.verdict for each in results(own, said, count=count) if each.check == "gang_latency"} for own in range(count)]


def cut(node: int, count: int) -> dict[tuple[int, int], Any]:
    """It reaches nobody, and nobody reaches it."""
    return {(asking, asked): TIMED_OUT for asking in range(count) for asked in range(count) if node in (asking, asked)}


@pytest.mark.parametrize(("count", "fan_out", "asked"), [(2, 2, [1]), (3, 2, [1, 2]), (64, 2, [1, 2]), (4, 9, [1, 2, 3])])
def test_each_node_asks_a_few_and_none_itself(count: int, fan_out: int, asked: list[int]) -> None:
    assert ring(0, count, fan_out) == asked
    assert all(index not in ring(index, count, fan_out) for index in range(count))


def test_a_node_that_is_cut_off_is_at_fault_and_those_that_ask_it_are_warned() -> None:
    said = [words(index, 5, bad=cut(2, 5)) for index in range(5)]

    assert verdicts_by_node(said, count=5) == [{PASS, WARN}, {PASS, WARN}, {FAIL}, {PASS, WARN}, {PASS, WARN}]


def test_of_one_pair_that_fails_alone_both_nodes_are_at_fault_and_it_is_named() -> None:
    said = [words(index, 5, bad={(1, 2): TIMED_OUT}) for index in range(5)]

    assert verdicts_by_node(said, count=5) == [{PASS}, {PASS, FAIL}, {PASS, FAIL}, {PASS}, {PASS}]
    (failed,) = [each for each in results(1, said, count=5) if each.verdict is FAIL]
    assert failed.text == "node-1 to node-2: timed out"


def test_of_two_nodes_that_do_not_reach_each_other_both_are_at_fault() -> None:
    assert verdicts_by_node([words(index, 2, bad=cut(0, 2)) for index in range(2)], count=2) == [{FAIL}, {FAIL}]


def test_what_is_stored_is_the_worst_pair_with_all_that_are_as_bad() -> None:
    def stored(own: int, bad: Mapping[tuple[int, int], Any]) -> tuple[Verdict, str]:
        said = [words(index, 5, bad=bad) for index in range(5)]
        (found,) = [each for each in in_one(results(own, said, count=5)) if each.check == "gang_latency"]
        return found.verdict, found.text

    assert stored(0, {(0, 1): {"ms": 0.9}}) == (PASS, "node-0 to node-1")
    assert stored(1, {(1, 2): TIMED_OUT, (4, 1): TIMED_OUT}) == (FAIL, "node-1 to node-2: timed out; node-4 to node-1: timed out")
    assert stored(1, cut(2, 5))[0] is WARN


@pytest.mark.parametrize("text", ["", "Traceback: no module named json", "{}", '{"gang": {"index": 9, "peers": {}}}'])
def test_a_pod_that_said_nothing_is_cut_off_when_nobody_reached_it_either(text: str) -> None:
    said = [words(index, 4, bad=cut(3, 4)) for index in range(3)]

    assert verdicts_by_node([*said, PodOutput(index=3, node="node-3", text=text)], count=4)[3] == {FAIL}
    assert verdicts_by_node(said, count=4) == [{PASS, WARN}, {PASS, WARN}, {PASS, WARN}, {FAIL}]


def test_of_two_nodes_the_one_whose_pod_said_nothing_is_at_fault() -> None:
    assert verdicts_by_node([words(0, 2, bad=cut(1, 2))], count=2) == [{WARN}, {FAIL}]


@pytest.mark.parametrize("count", [2, 3])
def test_a_pod_that_never_came_has_no_name_and_its_node_is_at_fault(count: int) -> None:
    last = count - 1
    said = [words(index, count, bad=dict.fromkeys(cut(last, count), NOT_FOUND)) for index in range(last)]

    assert [FAIL in found for found in verdicts_by_node(said, count=count)] == [False] * last + [True]


def test_of_three_nodes_two_that_came_and_find_each_other_by_no_name_are_not_at_fault() -> None:
    everywhere = {(asking, asked): NOT_FOUND for asking in range(3) for asked in range(3)}

    with pytest.raises(Unreadable, match="the Service egs-checks"):
        results(0, [words(index, 3, bad=everywhere) for index in (0, 1)], count=3)


def test_a_pod_that_was_reached_and_said_nothing_is_at_fault_and_no_other() -> None:
    assert verdicts_by_node([words(index, 4) for index in (0, 1, 2)], count=4) == [{PASS, WARN}, {PASS, WARN}, {PASS}, {PASS, FAIL}]


def test_a_way_that_takes_too_long_fails() -> None:
    said = [words(index, 2, bad={(0, 1): {"ms": 101.0}}) for index in range(2)]

    assert verdicts_by_node(said, count=2) == [{PASS, FAIL}, {PASS, FAIL}]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "no pod of the box said anything"),
        ([PodOutput(index=0, node="node-0", text="no document")], "no pod of the box said anything"),
        ([words(index, 2, bad={(0, 1): NOT_FOUND, (1, 0): NOT_FOUND}) for index in range(2)], "the Service egs-checks"),
    ],
)
def test_what_all_nodes_have_in_common_is_no_node_s_fault(said: list[PodOutput], why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        results(0, said, count=2)


DOWN = {"state": "1: DOWN", "phys_state": "3: Disabled"}
OTHER = {"gids/0": "fe80:0000:0000:0002:a088:c203:0012:3456"}
RAIL = {"gids/0": "fe80:0000:0000:0009:a088:c203:0012:3456"}


Ports = dict[str, dict[str, str]]


def rdma(own: int, *of_nodes: Ports) -> dict[str, tuple[Verdict, str]]:
    count = len(of_nodes)
    said = [words(index, count, ports=ports) for index, ports in enumerate(of_nodes)]
    return {each.check: (each.verdict, each.text) for each in results(own, said, count=count) if each.check.startswith("gang_rdma")}


def test_rdma_ports_that_are_the_same_on_all_nodes_pass_though_each_rail_has_a_subnet_of_its_own() -> None:
    rails = {"mlx5_0": {}, "mlx5_1": RAIL, "mlx5_2": DOWN}

    assert rdma(0, rails, rails) == {"gang_rdma_links": (PASS, ""), "gang_rdma_subnet": (PASS, "")}


def test_a_port_that_is_down_on_one_node_alone_fails_there() -> None:
    good: Ports = {"mlx5_0": {}, "mlx5_1": {}}
    bad = good | {"mlx5_1": DOWN}

    assert rdma(1, good, bad, good)["gang_rdma_links"] == (FAIL, "mlx5_1/1")
    assert rdma(1, good, {"mlx5_0": {}}, good)["gang_rdma_links"] == (FAIL, "mlx5_1/1")
    assert rdma(0, good, bad, good)["gang_rdma_links"][0] is PASS


def test_a_port_in_another_subnet_than_on_most_nodes_fails_there_and_of_two_nodes_on_both() -> None:
    good: Ports = {"mlx5_0": {}, "mlx5_1": {}}
    odd = good | {"mlx5_1": OTHER}

    assert rdma(1, good, odd, good)["gang_rdma_subnet"] == (FAIL, "mlx5_1/1 in fe80:0000:0000:0002")
    assert [rdma(own, good, odd, good)["gang_rdma_subnet"][0] for own in (0, 2)] == [PASS, PASS]
    assert [rdma(own, good, odd)["gang_rdma_subnet"][0] for own in (0, 1)] == [FAIL, FAIL]


def test_a_port_that_lacks_the_address_that_the_others_have_fails() -> None:
    address = {"gids/2": "0000:0000:0000:0000:0000:ffff:0a00:0105"}

    assert rdma(1, {"mlx5_0": address}, {"mlx5_0": {}}, {"mlx5_0": address})["gang_rdma_subnet"][0] is FAIL


def test_a_box_without_rdma_is_not_asked_for_it() -> None:
    assert {verdict for verdict, _ in rdma(0, {}, {}).values()} == {SKIP}


# -- who takes it together ---------------------------------------------------------------------------------------------


def test_no_node_begins_before_all_of_its_box_have_come_so_far() -> None:
    stage = Stage()
    stage.fleet.step_s["gpu_count"] = 30.0
    slow, fast = stage.gang(entry_steps=STEPS)
    stage.tell(slow, msgspec.structs.replace(fast, entry_steps=("node_ready", "gang_network")))
    stage.run(15)
    assert (stage.seen("a0").step, stage.seen("a1").step) == ("gpu_count", "gang_network")
    assert "gang_network" not in {event.step for event in stage.take_events()}

    stage.run(60, until=lambda: stage.phase() is Phase.ACTIVE)

    told = [event for event in stage.take_events() if event.step == "gang_network"]
    assert [(event.assignment_id, {each.verdict for each in event.results}) for event in told] == [("a0", {PASS}), ("a1", {PASS})]


def test_a_box_of_one_node_skips_it_in_so_many_words() -> None:
    stage = Stage()
    stage.tell(stage.assignment(entry_steps=STEPS))
    stage.run(20, until=lambda: stage.phase() is Phase.ACTIVE)

    (told,) = [event for event in stage.take_events() if event.step == "gang_network"]
    assert {each.verdict for each in told.results} == {SKIP}


# -- a spare, beside nodes that are at work -----------------------------------------------------------------------------


def spare_told(own: int, said: list[PodOutput], *, count: int) -> dict[str, CheckResult]:
    """Returns what is stored of the spare, which is measured against the first nodes of its box."""
    names = tuple(f"node-{number}" for number in range(count))
    of = call(EntryStep.GANG_NETWORK, node=own, gang=names)
    at_work = tuple(name for name in names if name != f"node-{own}")
    return {each.check: each for each in in_one(gang_network(msgspec.structs.replace(of, at_work=at_work), said, fan_out=2))}


def test_a_spare_is_measured_against_nodes_at_work_and_says_against_which() -> None:
    told = spare_told(2, [words(index, 3) for index in range(3)], count=3)

    assert told["gang_latency"].verdict is PASS
    assert (told["gang_peers"].verdict, told["gang_peers"].value) == (PASS, 2.0)
    assert told["gang_peers"].text == "node-0, node-1; their GPUs are at work and were left out"


def ways(*pairs: tuple[int, int]) -> list[PodOutput]:
    """Three nodes, the last of which is the spare: these ways time out, the asking node first."""
    return [words(index, 3, bad=dict.fromkeys(pairs, TIMED_OUT)) for index in range(3)]


@pytest.mark.parametrize("pairs", [tuple(cut(2, 3)), ((2, 0), (2, 1)), ((0, 2), (1, 2))])
def test_a_spare_that_reaches_none_or_is_reached_by_none_of_those_that_reach_each_other_fails(pairs: tuple[tuple[int, int], ...]) -> None:
    told = spare_told(2, ways(*pairs), count=3)

    assert told["gang_latency"].verdict is FAIL
    assert (told["gang_peers"].verdict, told["gang_peers"].value) == (WARN, 0.0)
    assert told["gang_peers"].text == "not node-0, node-1: not reached both ways"


def test_a_node_at_work_that_nobody_reaches_is_not_the_spare_s_fault() -> None:
    told = spare_told(2, [words(index, 3, bad=cut(0, 3)) for index in range(3)], count=3)

    assert told["gang_latency"].verdict is WARN
    assert "node-2 to node-0: timed out" in told["gang_latency"].text
    assert told["gang_peers"].text == "node-1; their GPUs are at work and were left out; not node-0: not reached both ways"


def test_a_spare_and_the_one_other_node_that_do_not_reach_each_other_are_a_tie() -> None:
    """A full node may starve the pod that came as a guest: then it is as much the other's fault."""
    for pairs in (cut(0, 2), [(0, 1)], [(1, 0)]):
        told = spare_told(1, [words(index, 2, bad=dict.fromkeys(pairs, TIMED_OUT)) for index in range(2)], count=2)

        assert told["gang_latency"].verdict is WARN
        assert told["gang_latency"].text.startswith("it may be either node's fault, as one other alone answered: node-")
        assert (told["gang_peers"].verdict, told["gang_peers"].value) == (WARN, 0.0)


def test_where_of_two_others_one_alone_spoke_it_is_a_tie_as_well() -> None:
    told = spare_told(2, [words(index, 3, bad=cut(0, 3) | cut(2, 3)) for index in (1, 2)], count=3)

    assert told["gang_latency"].verdict is WARN
    assert told["gang_latency"].text.startswith("it may be either node's fault, as one other alone answered: node-1 to node-2")
    assert told["gang_peers"].text == "not node-1: not reached both ways; not node-0: its pod said nothing"


@pytest.mark.parametrize("between", [((0, 1), (1, 0)), ((0, 1),), ((1, 0),)])
def test_where_the_others_do_not_reach_each_other_either_it_says_nothing_against_the_spare(between: tuple[tuple[int, int], ...]) -> None:
    told = spare_told(2, ways(*cut(2, 3), *between), count=3)

    assert told["gang_latency"].verdict is WARN
    assert told["gang_latency"].text.startswith("it says nothing against this node, as the others do not reach each other either: node-")


@pytest.mark.parametrize("pairs", [((2, 0),), ((0, 2),), ((2, 0), (0, 2)), ((2, 0), (1, 2))])
def test_a_spare_that_reaches_one_and_is_reached_by_one_is_not_at_fault_alone(pairs: tuple[tuple[int, int], ...]) -> None:
    told = spare_told(2, ways(*pairs), count=3)

    assert told["gang_latency"].verdict is WARN
    assert told["gang_latency"].text.startswith("it may be either node's fault, as it reaches others and they reach it: node-")


def test_a_node_at_work_on_which_no_pod_came_up_is_told_as_not_measured_and_the_others_count() -> None:
    bad = dict.fromkeys(cut(0, 3), NOT_FOUND)
    told = spare_told(2, [words(index, 3, bad=bad) for index in (1, 2)], count=3)

    assert told["gang_latency"].verdict is PASS
    assert (told["gang_peers"].verdict, told["gang_peers"].value) == (WARN, 1.0)
    assert told["gang_peers"].text == "node-1; their GPUs are at work and were left out; not node-0: its pod said nothing"


def test_where_no_pod_came_up_on_any_of_them_nothing_counts_as_measured() -> None:
    bad = dict.fromkeys([*cut(0, 3), *cut(1, 3)], NOT_FOUND)
    told = spare_told(2, [words(2, 3, bad=bad, ports={"mlx5_0": {}})], count=3)

    assert {each.verdict for each in told.values()} == {SKIP}
    assert told["gang_peers"].text == "not node-0, node-1: its pod said nothing"


def test_a_spare_that_said_nothing_is_at_fault_itself() -> None:
    told = spare_told(2, [words(index, 3, bad=cut(2, 3)) for index in range(2)], count=3)

    assert told["gang_latency"].verdict is FAIL


def test_a_long_way_to_a_node_at_work_is_warned_of_for_its_load_is_in_it() -> None:
    told = spare_told(1, [words(index, 2, bad={(0, 1): {"ms": 101.0}}) for index in range(2)], count=2)

    assert told["gang_latency"].verdict is WARN
    assert told["gang_latency"].value == 101.0


def test_a_port_of_the_spare_that_is_down_and_up_at_work_fails() -> None:
    said = [words(0, 2, ports={"mlx5_0": {}}), words(1, 2, ports={"mlx5_0": DOWN})]

    assert spare_told(1, said, count=2)["gang_rdma_links"].verdict is FAIL


def test_a_port_of_the_spare_in_another_subnet_fails_where_the_others_agree_and_else_is_a_tie() -> None:
    def told(*subnets: Ports) -> tuple[Verdict, str]:
        count = len(subnets)
        said = [words(index, count, ports=ports) for index, ports in enumerate(subnets)]
        found = spare_told(count - 1, said, count=count)["gang_rdma_subnet"]
        return found.verdict, found.text

    one, other, third = ({"mlx5_0": gids} for gids in ({}, OTHER, RAIL))
    assert told(one, one, other) == (FAIL, "mlx5_0/1 in fe80:0000:0000:0002")
    assert told(one, other) == (WARN, "not one that most others have, so it may be their fault: mlx5_0/1 in fe80:0000:0000:0002")
    assert [told(one, other, third)[0], told(one, other, one)[0], told(one, one, one)[0]] == [WARN, PASS, PASS]
    both = one | {"mlx5_1": {}}
    assert told(both, both, {"mlx5_0": OTHER, "mlx5_1": OTHER})[0] is FAIL
    assert told(both, one | {"mlx5_1": DOWN}, {"mlx5_0": {}, "mlx5_1": OTHER})[0] is WARN


def with_spare(stage: Stage, *, replaces: str) -> dict[str, CheckResult]:
    """Two nodes are at work, a third enters: what is told of it by the check between them."""
    box = stage.gang(entry_steps=STEPS)
    stage.tell(*box)
    stage.run(20, until=lambda: stage.phase() is Phase.ACTIVE)
    stage.take_events()
    spare = stage.assignment(2, gang_count=3, entry_steps=STEPS, replaces=replaces)
    stage.tell(*(msgspec.structs.replace(each, gang_count=3) for each in box), spare)
    stage.run(20, until=lambda: stage.phase("a2") is Phase.ACTIVE)
    assert stage.phase("a2") is Phase.ACTIVE
    (told,) = [event for event in stage.take_events() if event.step == "gang_network"]
    assert told.assignment_id == "a2"
    return {each.check: each for each in told.results}


def test_a_spare_is_checked_against_the_others_of_its_box_but_not_the_one_that_it_replaces() -> None:
    told = with_spare(Stage(small_fleet(count=3)), replaces="a0")

    assert told["gang_latency"].verdict is PASS
    assert told["gang_peers"].text.startswith("test-h-02;")


def test_an_older_hub_does_not_say_which_node_is_replaced_and_none_is_asked() -> None:
    told = with_spare(Stage(small_fleet(count=3)), replaces="")

    assert {name: each.verdict for name, each in told.items()} == {"gang_latency": SKIP}


def test_where_no_other_node_of_the_box_is_well_the_spare_enters_and_it_says_so() -> None:
    stage = Stage(small_fleet(count=3))
    down = stage.views[1].name
    real = stage.cluster.observe

    def observe() -> dict[str, NodeState]:
        seen = real()
        if stage.phase("a2") is not None:
            seen[down] = msgspec.structs.replace(seen[down], view=msgspec.structs.replace(seen[down].view, ready=False, broken=True))
        return seen

    stage.cluster.observe = observe  # type: ignore[method-assign]

    told = with_spare(stage, replaces="a0")

    assert {name: (each.verdict, each.text) for name, each in told.items()} == {
        "gang_latency": (SKIP, "no other node of the box that is well is at work, or takes this with it"),
    }


def spare_that_measures(stage: Stage, *, broken: Callable[[], Collection[int]]) -> list[tuple[int, Gang]]:
    """Returns attempt and nodes of each poll of a spare that enters beside three nodes at work. `broken`: by number, at each look."""
    polls: list[tuple[int, Gang]] = []
    real, run = stage.cluster.observe, stage.cluster.run

    def observe() -> dict[str, NodeState]:
        seen = real()
        for number in broken():
            name = stage.views[number].name
            seen[name] = msgspec.structs.replace(seen[name], view=msgspec.structs.replace(seen[name].view, broken=True))
        return seen

    def measure(call: StepCall) -> StepProgress:
        if call.step == "gang_network" and call.at_work:
            polls.append((call.attempt, Gang(call.gang, call.at_work)))
        return run(call)

    stage.cluster.observe, stage.cluster.run = observe, measure  # type: ignore[method-assign]
    box = [stage.assignment(number, gang_count=3, entry_steps=STEPS, duration_s=600.0) for number in range(3)]
    stage.tell(*box)
    stage.run(20, until=lambda: stage.phase() is Phase.ACTIVE)
    stage.fleet.step_s["gang_network"] = 5.0
    stage.tell(*(msgspec.structs.replace(each, gang_count=4) for each in box), spare_of(stage))
    return polls


def spare_of(stage: Stage) -> Assignment:
    return stage.assignment(3, gang_count=4, entry_steps=STEPS, duration_s=600.0, replaces="a2")


def test_the_nodes_that_an_attempt_asks_stay_the_same_however_their_state_flaps() -> None:
    stage = Stage(small_fleet(count=4))
    broken: set[int] = set()
    polls = spare_that_measures(stage, broken=lambda: broken)
    stage.run(20, until=lambda: bool(polls))

    for now in ({0}, set(), {1}, {0, 1}):
        broken.clear()
        broken.update(now)
        stage.run(1)
    assert stage.phase("a3") is Phase.ENTERING
    stage.run(20, until=lambda: stage.phase("a3") is Phase.ACTIVE)

    first, second = (stage.views[number].name for number in (0, 1))
    assert {(attempt, gang.at_work) for attempt, gang in polls} == {(1, (first, second))}
    assert stage.phase("a3") is Phase.ACTIVE


def test_an_agent_that_was_restarted_goes_on_with_the_nodes_that_the_attempt_began_with() -> None:
    stage = Stage(small_fleet(count=4))
    broken: set[int] = set()
    polls = spare_that_measures(stage, broken=lambda: broken)
    stage.run(20, until=lambda: len(polls) > 2)

    broken.add(0)
    stage.start()
    box = [stage.assignment(number, gang_count=4, entry_steps=STEPS, duration_s=600.0) for number in range(3)]
    stage.tell(*box, spare_of(stage))
    before = len(polls)
    stage.run(20, until=lambda: stage.phase("a3") is Phase.ACTIVE)

    assert len(polls) > before
    assert {gang.at_work for _, gang in polls} == {tuple(stage.views[number].name for number in (0, 1))}


def test_the_next_attempt_asks_those_that_are_well_by_then() -> None:
    stage = Stage(small_fleet(count=4))
    broken: set[int] = set()
    polls = spare_that_measures(stage, broken=lambda: broken)
    run = stage.cluster.run

    def fails_once(call: StepCall) -> StepProgress:
        result = run(call)
        if call.step == "gang_network" and call.at_work and call.attempt == 1 and result.status is StepStatus.OK:
            broken.add(1)
            return StepProgress(status=StepStatus.FAILED)
        return result

    stage.cluster.run = fails_once  # type: ignore[method-assign]
    stage.run(60, until=lambda: stage.phase("a3") is Phase.ACTIVE)

    assert {attempt for attempt, _ in polls} == {1, 2}
    assert {gang.at_work for attempt, gang in polls if attempt == 1} == {tuple(stage.views[number].name for number in (0, 1))}
    assert {gang.at_work for attempt, gang in polls if attempt == 2} == {(stage.views[0].name,)}


def test_nodes_that_an_attempt_asks_may_all_have_left_meanwhile() -> None:
    spare, progress = member("s", active_s=None, replaces="a")
    progress.asked = ("node-d", "node-e")

    for others in ([member("f")], [member("t", active_s=None, replaces="b")], []):
        gangs = Gangs([*others, (spare, progress)])

        assert gangs.at("gang_network", spare, progress) == Gang(("node-d", "node-e", "node-s"), at_work=("node-d", "node-e"))


def member(id_: str, *, active_s: float | None = 1.0, gang_count: int = 9, replaces: str = "") -> Member:
    about = Stage(starts=False).assignment(id=id_, gang_count=gang_count, entry_steps=STEPS, replaces=replaces)
    return msgspec.structs.replace(about, node=f"node-{id_}"), Progress(active_s=active_s)


def test_a_spare_asks_two_of_a_large_box_and_none_that_is_to_be_replaced_or_is_no_member_yet() -> None:
    at_work = [member(id_) for id_ in "abcdef"]
    spares = [member("s", active_s=None, replaces="a"), member("t", active_s=None, replaces="b")]
    gangs = Gangs([*at_work, *spares], is_broken=lambda node: node == "node-c")

    for spare, progress in spares:
        assert gangs.at("gang_network", spare, progress) == Gang(
            tuple(sorted(["node-d", "node-e", spare.node])), at_work=("node-d", "node-e")
        )


def test_spares_of_a_box_of_which_nothing_is_left_take_it_together() -> None:
    both = [member("s", active_s=None, replaces="a", gang_count=2), member("t", active_s=None, replaces="b", gang_count=2)]
    for _, progress in both:
        progress.phase, progress.entry_done = Phase.ENTERING, ["node_ready", "gpu_count"]

    assert Gangs(both).at("gang_network", *both[0]) == Gang(("node-s", "node-t"))

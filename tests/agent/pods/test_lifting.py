"""The agent lets only so many pods into an open box that the scheduler can place them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cluster_names
from worker_agent.kube.api import devices
from worker_agent.kube.api.objects import Container, Gate, Meta, Node, NodeSpec, NodeStatus, Pod, PodSpec, Resources, Toleration
from worker_agent.kube.pods import lifting
from worker_agent.kube.pods.lifting import (
    Amounts,
    Lift,
    NodeCapacity,
    asks_for_gpus,
    lift_ops,
    lifts,
    parse_quantity,
    pod_needs,
    shared_node_amounts,
    whole_node_amounts,
    why_never,
    why_nowhere,
)


def pod(gpus: int = 1, *, name: str = "p", cpu: str = "1", node_uid: str = "", **more: str) -> Pod:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": cpu, "memory": "1Mi", **more}
    selector = {cluster_names.NODE_UID: node_uid} if node_uid else None
    spec = PodSpec(
        containers=(Container(resources=Resources(limits={key: value for key, value in limits.items() if value != "0"})),),
        schedulingGates=(Gate("theirs"), Gate(cluster_names.GATE)),
        nodeSelector=selector,
    )
    return Pod(metadata=Meta(name=name, namespace="a", uid=f"uid-{name}"), spec=spec)


def node_capacity(name: str, gpus: int, *, cpu: str | None = None, pods: int = 10, **others: int) -> NodeCapacity:
    """`cpu`: of its share of a node, None where it has the node to itself."""
    has = {"cpu": parse_quantity(cpu or "128"), "memory": parse_quantity("64Gi"), "pods": Decimal(pods), cluster_names.GPU: Decimal(gpus)}
    has |= {key.replace("_", "/"): Decimal(count) for key, count in others.items()}
    return NodeCapacity(node=name, uid=f"uid-{name}", taint="shared" if cpu else "gpr.1", has=has, is_shared=cpu is not None)


def names_of(chosen: list[Lift]) -> list[str]:
    return [lift.pod.metadata.name for lift in chosen]


@pytest.mark.parametrize(
    ("text", "value"), [("2", "2"), ("1500m", "1.5"), ("2Ti", "2199023255552"), ("1e3", "1000"), ("0.5", "0.5"), ("3E", "3e18"), (4, "4")]
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str | int, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "many", "1.2.3", "5Zi", "m"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        parse_quantity(text)


def test_pods_are_let_in_oldest_first_until_the_gpus_of_the_box_are_given_out() -> None:
    waiting = [pod(4, name="first"), pod(8, name="large"), pod(3, name="second"), pod(2, name="third")]

    assert names_of(list(lifts([node_capacity("n1", 8)], waiting, []))) == ["first", "second"]


def test_pods_that_are_inside_already_count() -> None:
    assert names_of(list(lifts([node_capacity("n1", 8), node_capacity("n2", 8)], [pod(8, name="x"), pod(1, name="y")], [pod(8)]))) == ["x"]


def test_a_pod_that_is_larger_than_any_node_of_the_box_does_not_block_the_others() -> None:
    assert names_of(list(lifts([node_capacity("n1", 4), node_capacity("n2", 4)], [pod(8, name="huge"), pod(4, name="fits")], []))) == [
        "fits"
    ]


def test_a_pod_that_asks_for_more_than_any_node_has_stays_out_and_keeps_nobody_else_out() -> None:
    small = [pod(1, name=f"p{number}") for number in range(8)]

    assert len(list(lifts([node_capacity("n1", 8)], [pod(8, name="typo", cpu="1000"), *small], []))) == 8
    assert names_of(list(lifts([node_capacity("n1", 8)], [pod(8, name="typo", **{"ephemeral-storage": "9Ti"}), *small], []))) == ["typo"]
    told = replace(node_capacity("n1", 8), has={**node_capacity("n1", 8).has, "ephemeral-storage": parse_quantity("8Ti")})
    assert len(list(lifts([told], [pod(8, name="typo", **{"ephemeral-storage": "9Ti"}), *small], []))) == 8


def test_gpus_that_are_left_on_several_nodes_go_to_pods_that_fit_onto_one_of_them() -> None:
    large, small = [pod(5, name=f"large{number}") for number in range(3)], [pod(1, name=f"p{number}") for number in range(6)]

    chosen = names_of(list(lifts([node_capacity("n1", 8), node_capacity("n2", 8)], [*large, *small], [])))

    assert chosen == ["large0", "large1", *(each.metadata.name for each in small)]


def inside(gpus: int, *, node: str = "", name: str = "inside", node_uid: str = "") -> Pod:
    spec = msgspec.structs.replace(pod(gpus, node_uid=node_uid).spec, nodeName=node, schedulingGates=())
    return Pod(metadata=Meta(name=name, namespace="a", uid=f"uid-{name}"), spec=spec)


def test_where_the_scheduler_put_a_pod_its_gpus_are_gone_and_those_without_a_node_come_before_who_waits() -> None:
    nodes, waiting = [node_capacity("n1", 8), node_capacity("n2", 8)], [pod(6, name="large"), pod(3, name="small")]

    assert names_of(list(lifts(nodes, waiting, [inside(3, node="n1"), inside(3, node="n2")]))) == ["small"]
    assert names_of(list(lifts(nodes, waiting, [inside(6, node="n2"), inside(6)]))) == []
    assert names_of(list(lifts(nodes, waiting, [inside(8, node_uid="uid-n2")]))) == ["large"]
    assert names_of(list(lifts(nodes, waiting, [inside(8, node="away")]))) == ["large", "small"]  # it takes nothing here


def test_a_pod_that_the_scheduler_cannot_place_keeps_its_turn_for_a_while_and_then_nobody_out_of_whole_nodes() -> None:
    nodes, waiting = [node_capacity("n1", 8), node_capacity("n2", 8)], [pod(1, name=f"p{number}") for number in range(10)]
    half_full = [inside(4, node="n1"), inside(4, node="n2"), inside(8, name="large")]

    assert list(lifts(nodes, waiting, half_full)) == []
    assert len(list(lifts(nodes, waiting, half_full, stranded=["uid-large"]))) == 8
    assert list(lifts([node_capacity("n1", 8)], waiting, [inside(8, name="large")])) == []
    assert len(list(lifts([node_capacity("n1", 8)], waiting, [inside(8, name="large")], stranded=["uid-large"]))) == 8


def test_while_nothing_can_be_placed_no_more_than_two_boxfuls_are_let_in_ever() -> None:
    """Each that is let in is lost for other boxes, and a bare one for good when the box ends."""
    waiting = [pod(1, name=f"p{number}") for number in range(100)]
    let_in: list[Pod] = []

    for _ in range(20):
        names_let_in = [each.metadata.name for each in let_in]
        left = [each for each in waiting if each.metadata.name not in names_let_in]
        chosen = lifts([node_capacity("n1", 8)], left, let_in, stranded=[each.metadata.uid for each in let_in])
        let_in += [inside(1, name=lift.pod.metadata.name) for lift in chosen]

    assert len(let_in) == 16


def test_where_a_node_is_shared_a_pod_that_the_scheduler_cannot_place_counts_to_its_end() -> None:
    let_in = inside(4, name="large", node_uid="uid-n1")

    assert list(lifts([node_capacity("n1", 4, cpu="64")], [pod(1)], [let_in], stranded=["uid-large"])) == []


def test_what_fits_onto_no_node_of_a_box_is_said_in_words_of_the_pod() -> None:
    nodes = [node_capacity("n1", 8), node_capacity("n2", 4, cpu="64")]

    assert why_nowhere(nodes, pod_needs(pod(8, memory="64Gi"))) == ""
    assert why_nowhere(nodes, pod_needs(pod(1, cpu="1000"))) == "it asks for 1000 cpu, and no node there has more than 128 cpu"
    assert why_nowhere(nodes, pod_needs(pod(1, memory="96Gi"))) == "it asks for 96Gi memory, and no node there has more than 64Gi memory"
    assert why_nowhere(nodes, pod_needs(pod(1, memory="65537Mi"))) == (
        "it asks for 65537Mi memory, and no node there has more than 65536Mi memory"
    )
    assert "16 nvidia.com/gpu, and no node there has more than 8" in why_nowhere(nodes, pod_needs(pod(16)))
    assert "1 rdma/hac, and no node there has more than 0" in why_nowhere(nodes, pod_needs(pod(1, **{"rdma/hac": "1"})))
    unlike = [node_capacity("n1", 8, cpu="8"), node_capacity("n2", 4, cpu="64")]
    assert why_nowhere(unlike, pod_needs(pod(8, cpu="32"))) == "no node there has all at once that it asks for"


def test_what_is_asked_for_in_no_amount_is_no_hindrance_where_more_is_taken_than_there_is() -> None:
    overdrawn = replace(node_capacity("n1", 8), has={**node_capacity("n1", 8).has, "memory": Decimal(-1)})

    assert names_of(list(lifts([overdrawn], [pod(1, memory="0Mi")], []))) == ["p"]
    assert list(lifts([overdrawn], [pod(1, memory="1Mi")], [])) == []


def test_a_box_of_hundreds_of_nodes_is_counted_without_asking_each_node_for_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, fits = [0], lifting._fits

    def counting(needs: Amounts, left: Amounts) -> bool:
        asked[0] += 1
        return fits(needs, left)

    monkeypatch.setattr(lifting, "_fits", counting)
    nodes = [node_capacity(f"n{number}", 8) for number in range(200)]

    chosen = list(lifts(nodes, [pod(1, name=f"p{number}") for number in range(3000)], []))

    assert len(chosen) == 1600
    assert asked[0] <= 3000 + 2 * len(nodes)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 40)), max_size=14),
    st.lists(st.tuples(st.integers(1, 8), st.integers(10, 60)), min_size=1, max_size=4),
    st.booleans(),
)
def test_who_gets_in_is_who_fits_first_as_a_slow_count_has_it(
    asked: list[tuple[int, int]], sizes: list[tuple[int, int]], is_shared: bool
) -> None:
    nodes = [replace(node_capacity(f"n{at}", gpus, cpu=str(cpu), pods=100), is_shared=is_shared) for at, (gpus, cpu) in enumerate(sizes)]
    waiting = [pod(gpus, name=f"p{at}", cpu=str(cpu)) for at, (gpus, cpu) in enumerate(asked)]

    left, expected = [list(size) for size in sizes], []
    for at, (gpus, cpu) in enumerate(asked):
        place = next((place for place, (free, cpus) in enumerate(left) if gpus <= free and cpu <= cpus), None)
        if place is not None:
            left[place] = [left[place][0] - gpus, left[place][1] - cpu]
            expected.append((f"p{at}", f"n{place}" if is_shared else None))

    found = [(lift.pod.metadata.name, lift.capacity and lift.capacity.node) for lift in lifts(nodes, waiting, [])]
    assert found == expected


def test_on_shared_nodes_each_pod_is_given_its_node_so_that_four_and_four_never_become_seven_on_one() -> None:
    nodes = [node_capacity("n1", 4, cpu="32"), node_capacity("n2", 4, cpu="32")]

    chosen = list(lifts(nodes, [pod(3, name="a"), pod(4, name="b"), pod(1, name="c"), pod(1, name="d")], []))

    assert [(lift.pod.metadata.name, lift.capacity and lift.capacity.node) for lift in chosen] == [("a", "n1"), ("b", "n2"), ("c", "n1")]


def test_pods_that_came_in_while_the_box_had_the_node_to_itself_count_once_it_is_shared() -> None:
    def anywhere(node: str) -> Pod:
        spec = PodSpec(nodeName=node, containers=pod(1).spec.containers)
        return Pod(metadata=Meta(name="inside", namespace="a", uid="uid-inside"), spec=spec)

    nodes = [node_capacity("n1", 2, cpu="32"), node_capacity("n2", 2, cpu="32")]
    waiting = [pod(1, name=f"p{number}") for number in range(4)]

    assert len(list(lifts(nodes, waiting, [anywhere("n1"), anywhere("n1")]))) == 2
    assert len(list(lifts(nodes, waiting, [anywhere("")]))) == 2  # it may be in either


def test_on_shared_nodes_cpu_memory_and_pods_count_too_so_that_a_neighbour_keeps_its_part() -> None:
    nodes = [node_capacity("n1", 4, cpu="16", pods=2)]

    assert names_of(list(lifts(nodes, [pod(1, name="greedy", cpu="17"), pod(1, name="fair", cpu="8")], []))) == ["fair"]
    assert names_of(list(lifts(nodes, [pod(1, name=f"p{number}") for number in range(4)], [pod(1, node_uid="uid-n1")]))) == ["p0"]
    assert names_of(list(lifts(nodes, [pod(1, name="memory", memory="65Gi")], []))) == []


def test_a_node_of_its_own_has_what_the_system_leaves_and_no_more_gpus_than_still_work() -> None:
    offers = {"cpu": "100", "memory": "1000Gi", "pods": "110", "nvidia.com/gpu": "7", "rdma/hca": "4"}
    node = Node(metadata=Meta(name="n"), status=NodeStatus(allocatable=offers))

    has = whole_node_amounts(node, 8, [pod(0, cpu="20", memory="200Gi")])

    assert has == {
        "cpu": Decimal(80),
        "memory": parse_quantity("800Gi"),
        "pods": Decimal(109),
        cluster_names.GPU: Decimal(7),
        "rdma/hca": Decimal(4),
    }
    assert whole_node_amounts(Node(metadata=Meta(name="n")), 8, [])[cluster_names.GPU] == 0


def test_the_share_of_a_node_goes_with_the_gpus_after_what_the_system_takes() -> None:
    node = Node(metadata=Meta(name="n"), status=NodeStatus(allocatable={"cpu": "100", "memory": "1000Gi", "pods": "110"}))

    share = shared_node_amounts(node, 4, 8, [pod(0, cpu="20", memory="200Gi")])

    assert share == {"cpu": Decimal(40), "memory": parse_quantity("400Gi"), "pods": Decimal(54), cluster_names.GPU: Decimal(4)}


@given(st.lists(st.integers(1, 8), max_size=12), st.lists(st.integers(1, 8), min_size=1, max_size=4), st.booleans())
def test_no_more_gpus_are_let_in_than_the_box_has_anywhere(asked: list[int], sizes: list[int], is_shared: bool) -> None:
    nodes = [node_capacity(f"n{number}", size, cpu="1000" if is_shared else None, pods=100) for number, size in enumerate(sizes)]

    chosen = list(lifts(nodes, [pod(gpus, name=f"p{number}", cpu="0") for number, gpus in enumerate(asked)], []))

    assert sum(pod_needs(lift.pod)[cluster_names.GPU] for lift in chosen) <= sum(sizes)
    for each in nodes if is_shared else []:
        assert sum(pod_needs(lift.pod)[cluster_names.GPU] for lift in chosen if lift.capacity == each) <= each.has[cluster_names.GPU]


def test_a_pod_that_asks_for_no_gpus_in_number_is_no_gpu_pod() -> None:
    zero = pod(1, name="zero", **{"nvidia.com/gpu": "0"})

    assert not asks_for_gpus(zero)
    assert cluster_names.GPU not in pod_needs(zero)
    assert asks_for_gpus(pod(0, **{"nvidia.com/mig-1g.10gb": "1"}))
    assert asks_for_gpus(pod(0, **{"nvidia.com/gpu": "lots"}))


def test_network_cards_of_vendors_of_gpus_are_devices_and_an_installation_says_which_else(monkeypatch: pytest.MonkeyPatch) -> None:
    card = pod(0, **{"nvidia.com/hostdev": "1"})
    both = pod(8, name="both", **{"nvidia.com/hostdev_rdma": "1"})
    odd = pod(8, name="odd", **{"nvidia.com/resibp24s0": "1"})
    whole, part = node_capacity("n1", 8), node_capacity("n2", 8, cpu="32")
    whole = replace(whole, has={**whole.has, "nvidia.com/hostdev_rdma": Decimal(8)})
    assert not asks_for_gpus(card)
    assert why_never(both) == ""
    assert [lift.capacity and lift.capacity.node for lift in lifts([part, whole], [both], [])] == ["n1"]
    assert "resibp24s0" in why_never(odd)

    monkeypatch.setattr(devices._Current, "rules", devices.Devices(no_gpus=("nvidia.com/resibp24s0",), in_parts=("nvidia.com/resibp24s0",)))
    node = Node(metadata=Meta(name="n"), status=NodeStatus(allocatable={"nvidia.com/resibp24s0": "9", "nvidia.com/hostdev": "8"}))
    assert why_never(odd) == ""
    assert shared_node_amounts(node, 4, 8, []) == {"cpu": 0, "memory": 0, "pods": 0, "nvidia.com/resibp24s0": 4, cluster_names.GPU: 4}
    beside = replace(part, has={**part.has, "nvidia.com/resibp24s0": Decimal(4)})
    assert names_of(list(lifts([beside], [odd, pod(8, name="odder", **{"nvidia.com/resibp24s0": "1"})], []))) == ["odd"]


def test_where_a_node_is_shared_local_disk_and_huge_pages_count_and_a_pod_says_what_it_needs() -> None:
    offers = {"cpu": "100", "memory": "1000Gi", "pods": "110", "ephemeral-storage": "800Gi", "hugepages-2Mi": "8Gi"}
    share = shared_node_amounts(
        Node(metadata=Meta(name="n"), status=NodeStatus(allocatable=offers)), 4, 8, [pod(0, **{"ephemeral-storage": "100Gi"})]
    )
    assert (share["ephemeral-storage"], share["hugepages-2Mi"]) == (parse_quantity("350Gi"), parse_quantity("4Gi"))
    shared = replace(node_capacity("n1", 4, cpu="32"), has=share)
    greedy, fair = pod(1, name="greedy", **{"ephemeral-storage": "351Gi"}), pod(1, name="fair", **{"hugepages-2Mi": "4Gi"})

    assert names_of(list(lifts([shared], [greedy, fair], []))) == ["fair"]
    assert "351Gi ephemeral-storage, and no node there has more than 350Gi" in why_nowhere([shared], pod_needs(greedy))

    silent = pod(1, cpu="0", memory="0")
    assert list(lifts([shared], [silent], [])) == []
    assert why_nowhere([shared], pod_needs(silent)).startswith(
        "it asks for no cpu and no memory, and on a node that is shared each pod has to"
    )
    assert names_of(list(lifts([shared, node_capacity("n2", 8)], [silent], []))) == ["p"]


def test_init_containers_count_by_their_peak_and_sidecars_with_the_rest() -> None:
    def container(gpus: str, policy: str = "") -> Container:
        return Container(resources=Resources(limits={"nvidia.com/gpu": gpus}), restartPolicy=policy)

    spec = PodSpec(containers=(container("2"),), initContainers=(container("1", "Always"), container("4")))

    assert pod_needs(Pod(metadata=Meta(name="p"), spec=spec))[cluster_names.GPU] == 5


def test_a_pod_with_devices_that_are_not_counted_is_never_let_in_and_the_reason_is_said() -> None:
    claims = Pod(metadata=Meta(name="p"), spec=PodSpec(resourceClaims=({"name": "c"},)))

    assert "resource claims" in why_never(claims)
    assert "nvidia.com/mig-1g.10gb" in why_never(pod(0, **{"nvidia.com/mig-1g.10gb": "1"}))
    assert "cannot be read" in why_never(pod(1, memory="lots"))
    assert "asks for no nvidia.com/gpu" in why_never(pod(0))
    of_the_pod = PodSpec(containers=pod(1).spec.containers, resources=Resources(requests={"cpu": "60"}))
    assert "as a pod" in why_never(Pod(metadata=Meta(name="p"), spec=of_the_pod))
    assert why_never(pod(1, memory="1Gi", **{"ephemeral-storage": "1Gi"})) == ""


def test_a_pod_with_other_devices_gets_into_whole_nodes_alone_where_nobody_else_has_a_part_in_them() -> None:
    with_rdma = pod(8, name="rdma", **{"rdma/hca": "1"})
    whole = [node_capacity(name, 8, rdma_hca=4) for name in ("n1", "n2")]

    assert why_never(with_rdma) == ""
    assert names_of(list(lifts(whole, [with_rdma, pod(8, name="plain")], []))) == ["rdma", "plain"]
    misspelled = pod(8, name="typo", **{"rdma/hac": "1"})
    assert names_of(list(lifts(whole, [misspelled, pod(8, name="plain")], []))) == ["plain"]
    part = node_capacity("n1", 8, cpu="32")
    assert [lift.capacity and lift.capacity.node for lift in lifts([part, node_capacity("n2", 8, rdma_hca=4)], [with_rdma], [])] == ["n2"]
    for others in ([node_capacity("n1", 8)], [part]):
        assert names_of(list(lifts(others, [with_rdma, pod(8, name="plain")], []))) == ["plain"]


def test_a_lift_takes_our_gate_and_no_other_and_adds_the_way_into_this_box_alone() -> None:
    waiting = pod(1)
    tolerating = Toleration(key="node.kubernetes.io/not-ready", operator="Exists")
    spec = PodSpec(schedulingGates=waiting.spec.schedulingGates, tolerations=(tolerating,), nodeSelector={"zone": "z"})

    ops = lift_ops(Lift(Pod(metadata=waiting.metadata, spec=spec), ("shared",), node_capacity("n1", 4, cpu="8")), "gpr", 3)

    assert [(op["op"], op["path"], op.get("value")) for op in ops] == [
        ("test", "/metadata/uid", "uid-p"),
        ("test", "/spec/schedulingGates/1/name", "egs.io/gpr"),
        ("remove", "/spec/schedulingGates/1", None),
        ("add", "/spec/tolerations/-", {"key": "egs.io/box", "operator": "Equal", "value": "shared", "effect": "NoSchedule"}),
        ("add", "/spec/nodeSelector/node-restriction.kubernetes.io~1egs-box-gpr", "3"),
        ("add", "/spec/nodeSelector/node-restriction.kubernetes.io~1egs-node", "uid-n1"),
        ("add", "/metadata/labels", {"egs.io/gpr": "gpr"}),
    ]


def test_a_node_without_figures_has_no_share() -> None:
    assert shared_node_amounts(Node(metadata=Meta(name="n"), spec=NodeSpec()), 4, 8, [])["cpu"] == 0

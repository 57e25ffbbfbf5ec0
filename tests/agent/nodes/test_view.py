"""The agent reports a Kubernetes node with its shape and GPUs that keep their names, and never crashes on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.agents.events import InventoryEvent
from protocol.cluster_names import GPU, GPU_HARDWARE, GPU_UUIDS, ORDER, SUPPLY
from protocol.nodes.inventory import CONDITION_TEXT_MAX_CHARS, CONDITIONS_MAX, NodeView
from tests.kube.fleet_nodes import nodes_of
from worker_agent.cluster.fleet import read_fleet
from worker_agent.kube.api.objects import Condition, Meta, Node, NodeSpec, NodeStatus
from worker_agent.kube.nodes.view import MOST_GPUS, NotShown, node_view

FLEETS = sorted((Path(__file__).resolve().parents[3] / "deploy/fleets").glob("*.yaml"))
UID = "7d3a6c1e-0f51-4b35-9b7e-6a8a2f0c9f10"
READY = Condition(type="Ready", status="True")
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "8"}


def node(
    *,
    labels: dict[str, str] | None = None,
    uuids: str = "",
    capacity: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    conditions: tuple[Condition, ...] = (READY,),
    unschedulable: bool = False,
) -> Node:
    """Returns a node with eight H100; `labels` are added to its own, and those that are "" are taken away."""
    all_labels = {key: value for key, value in (LABELS | (labels or {})).items() if value}
    capacity = {GPU: "8"} if capacity is None else capacity
    return Node(
        metadata=Meta(name="node-1", uid=UID, labels=all_labels, annotations={GPU_UUIDS: uuids} if uuids else None),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(capacity=capacity, allocatable=capacity if allocatable is None else allocatable, conditions=conditions),
    )


def seen(of: Node) -> NodeView:
    view = node_view(of)
    assert isinstance(view, NodeView), view
    return view


def healthy(of: Node) -> list[bool]:
    return [gpu.healthy for gpu in seen(of).gpus]


@pytest.mark.parametrize(
    ("product", "memory_mib", "model", "shape"),
    [
        ("NVIDIA-H100-80GB-HBM3", 81559, "H100", "H100-80GB"),
        ("NVIDIA-H100-PCIe", 81559, "H100-PCIe", "H100-PCIe-80GB"),
        ("NVIDIA-H100-NVL", 95830, "H100-NVL", "H100-NVL-94GB"),
        ("NVIDIA-H200", 143771, "H200", "H200-141GB"),
        ("NVIDIA-H20", 97871, "H20", "H20-96GB"),
        ("NVIDIA-B200", 183359, "B200", "B200-180GB"),
        ("NVIDIA-GB200", 189471, "GB200", "GB200-186GB"),
        # The figure in its name is the memory of its CPU.
        ("NVIDIA-GH200-480GB", 97871, "GH200", "GH200-96GB"),
        ("NVIDIA-A100-SXM4-40GB", 40960, "A100", "A100-40GB"),
        ("NVIDIA-A100-SXM4-40GB", 40537, "A100", "A100-40GB"),
        ("NVIDIA-A100-SXM4-80GB", 81920, "A100", "A100-80GB"),
        ("NVIDIA-A100-PCIE-40GB", 40960, "A100-PCIe", "A100-PCIe-40GB"),
        ("NVIDIA-A100-80GB-PCIe", 81920, "A100-PCIe", "A100-PCIe-80GB"),
        # With ECC on they show fifteen sixteenths.
        ("NVIDIA-L40S", 46068, "L40S", "L40S-48GB"),
        ("NVIDIA-L4", 23034, "L4", "L4-24GB"),
        ("NVIDIA-A10", 23028, "A10", "A10-24GB"),
        ("Tesla-T4", 15360, "T4", "T4-16GB"),
        ("Tesla-T4", 15109, "T4", "T4-16GB"),
        ("Tesla-V100-SXM2-16GB", 16160, "V100", "V100-16GB"),
        ("Tesla-V100-SXM2-32GB", 32510, "V100", "V100-32GB"),
        ("NVIDIA-GeForce-RTX-4090", 24564, "RTX-4090", "RTX-4090-24GB"),
        ("NVIDIA-GeForce-RTX-3080-Ti", 12288, "RTX-3080-Ti", "RTX-3080-Ti-12GB"),
        ("NVIDIA-RTX-A6000", 49140, "RTX-A6000", "RTX-A6000-48GB"),
        ("NVIDIA-RTX-6000-Ada-Generation", 49140, "RTX-6000-Ada", "RTX-6000-Ada-48GB"),
        ("Quadro-RTX-6000", 24576, "RTX-6000", "RTX-6000-24GB"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887, "RTX-PRO-6000-Blackwell", "RTX-PRO-6000-Blackwell-96GB"),
    ],
)
def test_a_shape_is_named_as_the_gpu_is_sold(product: str, memory_mib: int, model: str, shape: str) -> None:
    view = seen(node(labels={"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(memory_mib)}))

    assert (view.gpus[0].model, view.shape) == (model, shape)
    assert f"-{view.gpus[0].memory_gib}GB" in shape


@pytest.mark.parametrize("fleet_file", FLEETS, ids=lambda path: path.stem)
def test_a_fleet_in_a_cluster_is_seen_as_the_simulated_one(fleet_file: Path) -> None:
    fleet = read_fleet(fleet_file)

    for made, view in zip(nodes_of(fleet), fleet.nodes(), strict=True):
        made["metadata"] |= {"uid": view.uid, "annotations": {GPU_UUIDS: ",".join(gpu.uuid for gpu in view.gpus)}}
        made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        assert seen(msgspec.convert(made, Node)) == view


@pytest.mark.parametrize(
    ("labels", "capacity", "why"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}, {GPU: "32"}, "shared"),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, {GPU: "56"}, "cut into parts"),
        ({"nvidia.com/gpu.sharing-strategy": "time-slicing"}, {"nvidia.com/gpu.shared": "32"}, "shared"),
        ({"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu.shared": "32"}, "shared"),
        ({}, {GPU: "4", "nvidia.com/mig-1g.10gb": "28"}, "cut into parts"),
        ({"nvidia.com/gpu.product": ""}, {GPU: "8"}, "nvidia.com/gpu.product"),
        ({"nvidia.com/gpu.memory": "much"}, {GPU: "8"}, "much"),
        ({"nvidia.com/gpu.memory": ""}, {GPU: "8"}, "nvidia.com/gpu.memory"),
        ({"nvidia.com/gpu.count": ""}, {}, "0 GPUs"),
        ({"nvidia.com/gpu.count": "1000000000"}, {GPU: "8"}, "too many GPUs"),
    ],
)
def test_a_node_without_whole_gpus_that_are_known_is_not_shown_and_it_is_said_why(
    labels: dict[str, str], capacity: dict[str, str], why: str
) -> None:
    view = node_view(node(labels=labels, capacity=capacity))

    assert isinstance(view, NotShown)
    assert why in view.why


def test_mig_that_was_turned_off_is_no_hindrance() -> None:
    assert seen(node(capacity={GPU: "8", "nvidia.com/mig-1g.10gb": "0"})).shape == "H100-80GB"


def test_its_place_and_its_order_are_told() -> None:
    labels = {
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/zone": "eu-1a",
        "topology.kubernetes.io/rack": "r7",
        "nvidia.com/gpu.clique": "cluster-1.5",
        ORDER: "order-1",
        SUPPLY: "burst",
    }

    view = seen(node(labels=labels))

    assert (view.node_type, view.zone, view.rack, view.nvlink_domain) == ("p5.48xlarge", "eu-1a", "r7", "cluster-1.5")
    assert (view.order, view.supply) == ("order-1", "burst")


@pytest.mark.parametrize(
    ("labels", "capacity", "rdma"),
    [
        ({}, {}, False),
        ({"feature.node.kubernetes.io/rdma.available": "true"}, {}, True),
        ({"feature.node.kubernetes.io/rdma.available": "false"}, {}, False),
        ({}, {"rdma/hca_shared_devices_a": "1k"}, True),
        ({}, {"rdma/ib": "8"}, True),
        ({}, {"rdma/ib": "0"}, False),
        ({}, {"nvidia.com/hostdev_rdma": "4"}, True),
    ],
)
def test_rdma_is_told_by_the_label_or_by_devices(labels: dict[str, str], capacity: dict[str, str], rdma: bool) -> None:
    assert seen(node(labels=labels, capacity={GPU: "8"} | capacity)).rdma is rdma


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "ready"),
    [
        ((READY,), False, True),
        ((READY,), True, False),
        ((), False, False),
        ((Condition(type="Ready", status="Unknown"),), False, False),
        ((READY, Condition(type="MemoryPressure", status="False")), False, True),
        ((READY, Condition(type="MemoryPressure", status="True")), False, False),
        ((READY, Condition(type="DiskPressure", status="True")), False, False),
        ((READY, Condition(type="PIDPressure", status="True")), False, False),
        ((READY, Condition(type="NetworkUnavailable", status="True")), False, False),
        ((READY, Condition(type="MaintenanceSoon", status="True")), False, True),
    ],
)
def test_a_node_is_ready_when_it_is_well_and_nobody_cordoned_it(
    conditions: tuple[Condition, ...], unschedulable: bool, ready: bool
) -> None:
    assert seen(node(conditions=conditions, unschedulable=unschedulable)).ready is ready


@pytest.mark.parametrize(("status", "broken"), [("True", False), ("False", True), ("Unknown", True)])
@pytest.mark.parametrize("unschedulable", [False, True])
def test_a_node_is_broken_by_its_own_word_whoever_cordoned_it(status: str, broken: bool, unschedulable: bool) -> None:
    assert seen(node(conditions=(Condition(type="Ready", status=status),), unschedulable=unschedulable)).broken is broken


def test_gpus_that_dropped_out_are_unhealthy_and_not_gone() -> None:
    assert healthy(node()) == [True] * 8
    assert healthy(node(allocatable={GPU: "6"})) == [True] * 6 + [False] * 2
    assert healthy(node(capacity={GPU: "7"})) == [True] * 7 + [False]


def test_without_its_device_plugin_all_gpus_of_a_node_are_unhealthy() -> None:
    assert healthy(node(capacity={})) == [False] * 8
    assert healthy(node(allocatable={})) == [False] * 8


def test_gpus_have_the_names_that_whoever_runs_the_cluster_gave_them() -> None:
    uuids = [f"GPU-{index}" for index in range(8)]

    assert [gpu.uuid for gpu in seen(node(uuids=", ".join(uuids))).gpus] == uuids


@pytest.mark.parametrize("uuids", ["", "GPU-0", "GPU-0,GPU-0,GPU-2,GPU-3,GPU-4,GPU-5,GPU-6,GPU-7", ",,,,,,,", "x" * 200 + ",1,2,3,4,5,6,7"])
def test_without_names_for_all_they_are_named_after_the_node(uuids: str) -> None:
    assert [gpu.uuid for gpu in seen(node(uuids=uuids)).gpus] == [f"{UID}-{index}" for index in range(8)]


@pytest.mark.parametrize("uuids", ["", ",".join(f"GPU-{index}" for index in range(8))])
def test_a_gpu_keeps_its_name_when_another_falls_off_the_bus(uuids: str) -> None:
    """GPU Feature Discovery then counts one less, and after a restart the device plugin, too."""
    before = seen(node(uuids=uuids)).gpus
    after = seen(node(uuids=uuids, labels={"nvidia.com/gpu.count": "7"}, capacity={GPU: "7"})).gpus

    assert [gpu.uuid for gpu in after][:7] == [gpu.uuid for gpu in before][:7]
    assert sum(gpu.healthy for gpu in after) == 7


def test_words_that_are_too_long_are_cut_and_the_shape_still_says_its_memory() -> None:
    view = seen(node(labels={"nvidia.com/gpu.product": "NVIDIA-" + "x" * 300, "topology.kubernetes.io/zone": "z" * 300 + "\n"}))

    assert view.zone == "z" * 63
    assert len(view.shape) == 63
    assert view.shape.endswith("x-80GB")


ANY = st.one_of(
    st.text(max_size=80), st.integers().map(str), st.sampled_from(["NVIDIA-H100", "-", "NVIDIA-", "8", "0", "81559", "٣", "1e3", "-SHARED"])
)
KEYS = st.sampled_from(
    [
        *LABELS,
        "nvidia.com/gpu.replicas",
        "nvidia.com/gpu.clique",
        "nvidia.com/gpu.machine",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/rack",
        ORDER,
        SUPPLY,
    ]
)
RESOURCES = st.dictionaries(st.one_of(st.just(GPU), st.just("rdma/ib"), st.text(max_size=20)), ANY, max_size=4)


@st.composite
def any_nodes(draw: st.DrawFn) -> Node:
    meta: dict[str, Any] = {
        "name": draw(st.one_of(st.just("node-1"), st.text(max_size=300))),
        "uid": draw(st.one_of(st.just(UID), st.text(max_size=80))),
        "labels": draw(st.one_of(st.none(), st.dictionaries(KEYS, ANY).map(LABELS.__or__), st.dictionaries(KEYS, ANY))),
        "annotations": draw(
            st.one_of(st.none(), st.dictionaries(st.sampled_from([GPU_UUIDS, GPU_HARDWARE]), st.lists(ANY, max_size=9).map(",".join)))
        ),
    }
    conditions = draw(st.lists(st.builds(Condition, type=ANY, status=ANY), max_size=3))
    status = NodeStatus(capacity=draw(RESOURCES), allocatable=draw(RESOURCES), conditions=tuple(conditions))
    return Node(metadata=Meta(**meta), status=status)


@given(any_nodes())
def test_whatever_a_node_says_it_is_shown_by_the_protocols_words_or_not_at_all_with_a_reason(given_node: Node) -> None:
    view = node_view(given_node)

    if isinstance(view, NotShown):
        assert view.why
        return
    sent = InventoryEvent(seq=1, nodes=(view,))
    assert msgspec.json.decode(msgspec.json.encode(sent), type=InventoryEvent) == sent
    assert 1 <= len({gpu.uuid for gpu in view.gpus}) == len(view.gpus) <= MOST_GPUS


@pytest.mark.parametrize(
    ("name", "status", "is_told"),
    [
        ("Ready", "Unknown", True),
        ("MemoryPressure", "True", True),
        ("NetworkUnavailable", "False", False),
        ("GpuUnhealthy", "True", True),
        ("XidError", "True", True),
        ("NVLinkDown", "True", True),
        ("NVLinkDown", "False", False),
        ("KernelDeadlock", "True", True),
        ("AcceleratedHardwareReady", "False", True),
        ("AcceleratedHardwareReady", "True", False),
        ("AcceleratedHardwareReady", "Unknown", False),
        ("GpuNotReady", "True", True),
        ("EtcdIsVoter", "True", False),
        ("GpuError\n", "True", False),
        ("GpuError" * 8, "True", False),
    ],
)
def test_only_conditions_that_are_bad_are_told(name: str, status: str, is_told: bool) -> None:
    ready = () if name == "Ready" else (READY,)
    told = seen(node(conditions=(*ready, Condition(type=name, status=status)))).conditions
    assert [(each.type, each.status) for each in told] == ([(name, status)] if is_told else [])


def test_what_a_condition_says_is_cleaned_and_bounded() -> None:
    long = Condition(type="XidError", status="True", reason="r" * 99, message="Xid 79\n\x1b[31m" + "m" * 999)
    told = seen(node(conditions=(READY, *(Condition(type=f"GpuError{n}", status="True") for n in range(40)), long))).conditions
    assert len(told) == CONDITIONS_MAX
    (one,) = seen(node(conditions=(READY, long))).conditions
    assert (one.reason, one.since_s) == ("r" * 63, None)
    assert one.message.startswith("Xid 79 [31mm")
    assert len(one.message) == CONDITION_TEXT_MAX_CHARS

"""The agent turns values of exporters, of several vendors and versions, into readings of the inventory's GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocol.gpus.telemetry import METRICS, NAMES, GpuReading
from protocol.gpus.xids import new_xids
from protocol.nodes.inventory import GpuView, NodeCondition, NodeView
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState
from worker_agent.telemetry.exposition import NotExposition, parse
from worker_agent.telemetry.pod_devices import PodDevices
from worker_agent.telemetry.readings import TOLD_S, Buses, Counters, Unread, readings
from worker_agent.telemetry.told_xids import Device, Telling, told_xids

TEXTS = Path(__file__).with_name("texts")
AT_S = 1_800_000_000.0


def node(*, gpus: int = 2, hardware: tuple[str, ...] = (), held: dict[int, str] | None = None) -> NodeState:
    """`held` has the GPR of each held GPU by its index."""
    views = tuple(
        GpuView(uuid=f"uid-{n}", index=n, model="H100", memory_gib=80, hardware_uuid=hardware[n] if hardware else "") for n in range(gpus)
    )
    view = NodeView(name="gpu-1", uid="uid", shape="H100-80GB", node_type="hgx", gpus=views)
    records = {
        f"uid-{n}": GpuRecord(epoch=1, assignment_id=f"a-{gpr}", gpr_id=gpr, slice="s", phase=GpuPhase.OPEN, active_s=AT_S)
        for n, gpr in (held or {}).items()
    }
    return NodeState(view=view, version="1", records=records)


def read(
    text: str | bytes,
    state: NodeState | None = None,
    *,
    counters: Counters | None = None,
    at_s: float = AT_S,
    box_of_pod: Callable[[str, str], str] = lambda *_: "",
    where: str = "gpu-1",
    step: int = 1000,
) -> dict[str, dict[str, float]]:
    """The values of each GPU that were measured."""
    found = read_whole(text, state, counters=counters, at_s=at_s, box_of_pod=box_of_pod, where=where, step=step)
    return {reading.gpu: said(reading) for reading in found}


def read_whole(
    text: str | bytes,
    state: NodeState | None = None,
    *,
    counters: Counters | None = None,
    at_s: float = AT_S,
    box_of_pod: Callable[[str, str], str] = lambda *_: "",
    where: str = "gpu-1",
    step: int = 1000,
    warnings: Sequence[Telling] = (),
    buses: Buses | None = None,
) -> list[GpuReading]:
    """The text comes in pieces of `step` bytes."""
    body = text.encode() if isinstance(text, str) else text
    rows = parse((body[at : at + step] for at in range(0, len(body), step)), now_s=at_s).devices
    here = state or node()
    return list(
        readings(
            rows,
            {"gpu-1": here},
            node=where,
            box_of_pod=box_of_pod,
            counters=counters or Counters(),
            devices=PodDevices(),
            told_of={"gpu-1": told_xids((*map(Telling.of, here.view.conditions), *warnings))},
            buses={} if buses is None else buses,
            at_s=at_s,
        )
    )


def said(reading: GpuReading) -> dict[str, float]:
    return {name: value for name, value in zip(NAMES, reading.values, strict=True) if value is not None}


def text_of(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text()


def test_dcgm_exporter_3_is_read_with_its_units() -> None:
    found = read(text_of("dcgm_3"))

    assert found["uid-0"] == {
        "temperature_c": 68,
        "sm_clock_mhz": 1980,
        "power_w": 612.34,
        "pcie_mib_s": 30,
        "tensor_percent": 53.21,
    }
    assert found["uid-1"] == {"temperature_c": 31, "sm_clock_mhz": 345}


def test_dcgm_exporter_4_is_read_though_fields_are_missing_or_come_twice() -> None:
    assert read(text_of("dcgm_4"))["uid-0"] == {"temperature_c": 55, "nvlink_errors": 8, "xid": 94}


def test_parts_of_a_gpu_never_add_to_what_the_whole_gpu_says() -> None:
    found = read(text_of("mig"))

    assert found["uid-0"] == {"temperature_c": 60, "memory_used_mib": 5000}
    # The board is as hot as each part says, memory is split, and one part works at three quarters.
    assert found["uid-1"] == {"temperature_c": 63, "memory_used_mib": 3000, "utilization_percent": 75}


def test_the_exporters_of_amd_and_intel_are_read_by_their_names() -> None:
    assert read(text_of("amd"))["uid-0"] == {
        "temperature_c": 71,
        "utilization_percent": 97,
        "sm_clock_mhz": 2100,
        "memory_used_mib": 180000,
    }
    assert read(text_of("intel"), node(gpus=1))["uid-0"] == {"temperature_c": 44.5, "memory_used_mib": 4}


def test_a_gpu_is_known_by_the_drivers_uuid_before_its_index() -> None:
    assert read(text_of("dcgm_3"), node(hardware=("GPU-bb", "GPU-aa")))["uid-1"]["temperature_c"] == 68


def test_rows_of_an_endpoint_for_all_name_their_nodes_and_unknown_nodes_are_left_out() -> None:
    assert set(read(text_of("dcgm_3"), where="")) == {"uid-0", "uid-1"}
    assert read(row("DCGM_FI_DEV_GPU_TEMP", 40, 'gpu="0",Hostname="elsewhere"'), where="") == {}


# -- whose GPU ---------------------------------------------------------------------------------------------------------


def test_without_labels_of_pods_the_gpus_of_a_whole_node_are_those_of_its_box() -> None:
    assert set(read(text_of("dcgm_3"), node(held={0: "x", 1: "x"}))) == {"uid-0", "uid-1"}


def test_on_a_shared_node_a_pod_says_which_box_a_gpu_works_for() -> None:
    """The box holds the inventory's GPU 1; the kubelet gave its pod the driver's GPU 0."""
    boxes = {("vision", "train-0"): "x"}
    found = read(text_of("dcgm_3"), node(held={1: "x"}), box_of_pod=lambda namespace, pod: boxes.get((namespace, pod), ""))

    assert {gpu: values["temperature_c"] for gpu, values in found.items()} == {"uid-1": 68, "uid-0": 31}


def test_on_a_shared_node_a_gpu_that_no_pod_names_is_nobodys() -> None:
    """It may belong to either box, or to none."""
    unlabeled = text_of("dcgm_3").replace(',container="main",namespace="vision",pod="train-0"', "")

    assert read(unlabeled, node(held={0: "x", 1: "y"})) == {}
    assert read(unlabeled, node(held={1: "x"})) == {}


# -- counters ----------------------------------------------------------------------------------------------------------


def row(name: str, value: object, labels: str = 'gpu="0",UUID="GPU-aa"') -> str:
    return f"{name}{{{labels}}} {value}\n"


def test_rates_come_from_two_scrapes_and_a_counter_that_fell_has_begun_anew() -> None:
    counters = Counters()
    throttled = [
        read(row("DCGM_FI_DEV_THERMAL_VIOLATION", value), counters=counters, at_s=AT_S + 15 * n)["uid-0"].get("throttled_percent")
        for n, value in enumerate([5_000_000_000, 8_000_000_000, 100, 1_500_000_100])
    ]

    assert throttled == [None, 20.0, None, 10.0]


def test_new_faults_are_counted_once_and_a_known_xid_is_no_news() -> None:
    counters, faults = Counters(), []
    for n, (ecc, xid) in enumerate([(7, 0), (9, 0), (9, 94), (9, 94), (0, 94), (1, 31)]):
        text = row("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", ecc) + row("DCGM_FI_DEV_XID_ERRORS", xid)
        faults.append(read(text, counters=counters, at_s=AT_S + 15 * n)["uid-0"].get("new_faults"))

    assert faults == [None, 2, 1, 0, 0, 2]


def test_xids_that_the_exporter_counts_by_number_are_read_and_counted_once() -> None:
    counters, said = Counters(), []
    for n, counts in enumerate([{}, {48: 2, 79: 1, 0: 0}, {48: 2, 79: 1}, {79: 1, 48: 1}, {}, {79: 1}]):
        text = "".join(
            row("DCGM_EXP_XID_ERRORS_COUNT", count, f'gpu="0",UUID="GPU-aa",window_size_in_ms="300000",xid="{xid}"')
            for xid, count in counts.items()
        )
        text += row("DCGM_FI_DEV_GPU_TEMP", 40) + row("DCGM_FI_DEV_XID_ERRORS", 79 if n else 0) + row("DCGM_EXP_XID_ERRORS_COUNT", 1)
        (reading,) = read_whole(text, counters=counters, at_s=AT_S + 15 * n)
        said.append((dict(reading.xids), reading.values[NAMES.index("new_faults")]))

    assert said == [({}, None), ({48: 2, 79: 1}, 3), ({48: 2, 79: 1}, 0), ({48: 1, 79: 1}, 0), ({}, 0), ({79: 1}, 1)]


SYSLOG = "NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus."
UUID = "GPU-0a1b2c3d-0000-1111-2222-333344445555"


@pytest.mark.parametrize(
    ("name", "reason", "message", "told"),
    [
        ("GpuXid", "XidError", SYSLOG, [(79, Device(bus_id="0:3b:0"))]),
        (
            "KernelProblem",
            "Xid",
            f"{SYSLOG} Xid (PCI:0000:86:00): 154",
            [(79, Device(bus_id="0:3b:0")), (154, Device(bus_id="0:86:0"))],
        ),
        ("SysLogsXIDError", "NotHealthy", f"ErrorCode:119 PCI:0000:3b:00 GPU_UUID:{UUID} Recommended", [(119, Device(UUID, "0:3b:0"))]),
        ("AcceleratedHardwareReady", "NvidiaXID79Error", "XID 79 on GPU 3", [(79, Device(index=3))]),
        ("XidCriticalError", "XidCriticalError", "xid=48", [(48, Device())]),
        ("GpuUnhealthy", "DcgmFailed", "ErrorCode:79 GPU:1", []),
        ("GpuUnhealthy", "", "Xid 43, Xid 79000", []),
    ],
)
def test_xids_are_read_from_the_conditions_that_watchers_of_nodes_set(
    name: str, reason: str, message: str, told: list[tuple[int, Device]]
) -> None:
    found = told_xids([Telling.of(NodeCondition(type=name, status="True", reason=reason, message=message))])
    assert [(each.number, each.device) for each in found] == told


def test_an_xid_that_a_condition_and_the_exporter_tell_of_is_one_whoever_is_first() -> None:
    def course(*steps: tuple[int, float | None]) -> list[int]:
        """The gauge, and since when the condition tells of it."""
        counters, faults = Counters(), list[int]()
        hub: tuple[int | None, dict[int, int]] = (None, {})
        for n, (xid, since_s) in enumerate(steps):
            state = with_conditions(node(), *([SYSLOG] if since_s is not None else []), since_s=since_s)
            text = row("DCGM_FI_DEV_XID_ERRORS", xid, 'gpu="0",UUID="GPU-aa",pci_bus_id="00000000:3B:00.0"')
            (reading,) = read_whole(text, state, counters=counters, at_s=AT_S + 15 * n)
            last, counts = int(said(reading)["xid"]), dict(reading.xids)
            faults.append(sum(new_xids(last, counts, *hub).values()))
            hub = last, counts
        return faults

    assert course((0, None), (0, AT_S + 10), (79, AT_S + 10), (79, AT_S + 10), (79, None)) == [0, 1, 0, 0, 0]
    assert course((0, None), (79, None), (79, AT_S + 20), (154, AT_S + 20)) == [0, 1, 0, 1]
    assert course((0, None), (0, AT_S + 10), (0, AT_S + 10)) == [0, 1, 0]
    assert course((79, AT_S - 900), (79, AT_S - 900)) == [1, 0]  # an agent that begins anew
    assert course((79, None), (79, AT_S + 900)) == [1, 1]  # another one, while the gauge stays


def test_warnings_that_repeat_tell_of_so_many_xids_less_those_of_the_exporter_and_two_watchers_of_the_same() -> None:
    def said(*told: tuple[str, int, float, float], xid: int = 0) -> int:
        """Tells an Xid so many times between two moments, in the words of each source. An exporter's gauge changes to `xid`."""
        counters = Counters()
        warnings = [Telling(by, SYSLOG.replace("12", str(pid)), first_s, last_s, n) for pid, (by, n, first_s, last_s) in enumerate(told)]
        for gauge in (0, xid):
            text = row("DCGM_FI_DEV_XID_ERRORS", gauge, 'gpu="0",UUID="GPU-aa",pci_bus_id="00000000:3B:00.0"')
            (reading,) = read_whole(text, counters=counters, warnings=warnings)
        return dict(reading.xids).get(79, 0)

    hour_ago = AT_S - 3600
    assert said(("npd xid", 1, AT_S, AT_S)) == 1
    assert said(("npd xid", 1, AT_S, AT_S), xid=79) == 0
    assert said(("npd xid", 3, hour_ago, AT_S), xid=79) == 2
    assert said(("npd xid", 2, hour_ago, AT_S - 900), ("npd xid", 1, AT_S - 900, AT_S - 900)) == 3  # of two processes
    assert said(("npd xid", 2, hour_ago, AT_S), ("nvsentinel xid", 1, AT_S, AT_S), ("GpuXid", 1, AT_S, AT_S)) == 2


def test_a_gpu_without_an_exporter_has_readings_of_the_xids_that_conditions_tell_of_for_a_while() -> None:
    unread = Unread()

    def found(
        state: NodeState, *warnings: Telling, at_s: float = AT_S, read: tuple[str, ...] = ()
    ) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
        told_of = {"gpu-1": told_xids((*map(Telling.of, state.view.conditions), *warnings))}
        said = unread.readings({"gpu-1": state}, told_of, {("gpu-1", gpu) for gpu in read}, buses, at_s)
        return [(reading.gpu, reading.xids) for reading in said]

    buses: Buses = {}
    state = with_conditions(node(), "Xid 79 on GPU 1")
    assert found(state) == [("uid-1", ((79, 1),))]
    assert found(state, read=("uid-1",)) == []
    assert found(state, at_s=AT_S + TOLD_S) == []  # it has no readings, and is shown as stale
    assert found(node()) == [("uid-1", ())]  # else the hub would take the next one for the same
    assert found(with_conditions(node(held={0: "x", 1: "y"}), "Xid 79 on GPU 1")) == []
    assert found(with_conditions(node(), "Xid 79")) == []  # nobody knows which one

    twice = Telling("npd", SYSLOG, AT_S, AT_S, count=2)
    assert found(node(), twice) == []
    read_whole(row("DCGM_FI_DEV_GPU_TEMP", 40, 'gpu="1",UUID="GPU-aa",pci_bus_id="00000000:3B:00.0"'), buses=buses)
    assert found(node(), twice) == [("uid-1", ((79, 2),))]  # the exporter told which one it is before it fell off
    assert found(node(), twice, at_s=AT_S + TOLD_S) == []
    assert found(node(), replace(twice, count=3), at_s=AT_S + TOLD_S) == [("uid-1", ((79, 3),))]
    assert ("uid-0", ((79, 1),)) in found(with_conditions(node(gpus=1), "Xid 79"))


def with_conditions(state: NodeState, *messages: str, since_s: float | None = None) -> NodeState:
    told = tuple(NodeCondition(type=f"Xid{n}", status="True", message=text, since_s=since_s) for n, text in enumerate(messages))
    return structs.replace(state, view=structs.replace(state.view, conditions=told))


# -- what is no text of an exporter ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3", "1e300", "", "soon", "0x1f", "5 5 5"])
def test_a_value_that_cannot_be_is_not_measured(value: str) -> None:
    assert "temperature_c" not in read(row("DCGM_FI_DEV_GPU_TEMP", value)).get("uid-0", {})


def test_a_negative_counter_is_not_counted() -> None:
    assert read(row("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", -4))["uid-0"] == {}


def test_a_row_may_have_a_time_and_an_old_one_is_no_news() -> None:
    now_ms = AT_S * 1000
    times = {"now": now_ms, "ahead": now_ms + 9e9, "old": now_ms - 3_600_000}
    told = {name: read(row("DCGM_FI_DEV_GPU_TEMP", f"50 {time:.0f}")).get("uid-0", {}) for name, time in times.items()}

    assert told == {"now": {"temperature_c": 50}, "ahead": {"temperature_c": 50}, "old": {}}


def test_labels_may_hold_quotes_braces_and_line_ends() -> None:
    labels = r'gpu="0",UUID="GPU-aa",pod="a\"},\\ {b\nc",namespace="n"'
    body = row("DCGM_FI_DEV_GPU_TEMP", 44, labels).encode()
    device = parse([body], now_s=AT_S).devices[0]

    assert (device.pod, device.values) == ('a"},\\ {b\nc', {b"DCGM_FI_DEV_GPU_TEMP": 44})


@pytest.mark.parametrize("text", ["<!doctype html><html>", "\n\n <html>", "\x00\x01"])
def test_a_page_or_bytes_are_refused(text: str) -> None:
    with pytest.raises(NotExposition):
        read(text + row("DCGM_FI_DEV_GPU_TEMP", 40))


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(NotExposition):
        parse((b"DCGM_FI_DEV_GPU_TEMP{" * 100 for _ in range(100)), now_s=AT_S)


@given(st.binary(max_size=2000), st.integers(1, 64))
def test_no_bytes_break_the_reader(body: bytes, step: int) -> None:
    try:
        found = read(b"# x\n" + body + row("DCGM_FI_DEV_GPU_TEMP", 40).encode(), step=step)
    except NotExposition:
        return
    assert all(0 <= value <= 4_194_304 * 1000 for values in found.values() for value in values.values())


LABEL = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=20)


@given(pod=LABEL, namespace=LABEL, value=st.floats(0, 200), spaces=st.booleans(), step=st.integers(1, 64))
def test_what_was_written_is_read(pod: str, namespace: str, value: float, spaces: bool, step: int) -> None:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    comma = ", " if spaces else ","
    labels = comma.join(['gpu="3"', f'pod="{quoted(pod)}"', f'namespace="{quoted(namespace)}"', 'UUID="GPU-aa"'])
    body = row("DCGM_FI_DEV_GPU_TEMP", repr(value), labels).encode()
    (device,) = parse((body[at : at + step] for at in range(0, len(body), step)), now_s=AT_S).devices

    assert (device.uuid, device.index, device.pod, device.namespace) == ("GPU-aa", 3, pod, namespace)
    assert math.isclose(device.values[b"DCGM_FI_DEV_GPU_TEMP"], value)


def test_every_metric_is_read_from_some_exporter_but_what_the_agent_counts() -> None:
    from protocol.gpus.exporters import SOURCES

    assert {source.metric for source in SOURCES.values()} == {metric.name for metric in METRICS} - {"new_faults"} | {"xid_counts"}

"""The verdict on each reading of a check: good, bad, missing, unreadable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from protocol.nodes.check_limits import is_good, threshold_of
from protocol.nodes.checks import CheckPolicy, CheckResult, Verdict
from protocol.nodes.steps import EntryStep
from tests.agent.checks.step_calls import step_call
from tests.kube.checks.healthy import nccl_report
from worker_agent.cluster.base import StepCall
from worker_agent.kube.api.objects import Condition, Meta, Pod, PodStatus
from worker_agent.kube.checks import readings, verdicts
from worker_agent.kube.checks.verdicts import Output, ProbeOutput, Reach, Unreadable, Volume, XidLog

GPU = "GPU-5f1d5c30-7a5e-9d43-8f0c-3f2b1c6d7e80"
PASS, WARN, FAIL, SKIP = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIP
N_A = "[N/A]"
# By field of nvidia-smi and by reading of a verdict
SMI = {
    "gpu_temperature": "temperature.gpu",
    "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
    "ecc_sram_uncorrected": "ecc.errors.uncorrected.aggregate.sram",
    "ecc_sram_corrected": "ecc.errors.corrected.aggregate.sram",
    "ecc_dram_corrected": "ecc.errors.corrected.aggregate.dram",
    "throttle_reasons": "clocks_event_reasons.active",
    "gpu_memory_used": "memory.used",
}
ROWS = {
    "rows_uncorrectable": "remapped_rows.uncorrectable",
    "rows_pending": "remapped_rows.pending",
    "rows_failed": "remapped_rows.failure",
}


def smi(**fields: str) -> Output:
    """Returns a line of nvidia-smi for a GPU that is good but for these fields."""
    good = dict.fromkeys(readings.GPU_FIELDS, "0") | {"uuid": GPU, "pci.bus_id": "00000000:1B:00.0", SMI["throttle_reasons"]: "0x1"}
    return Output(text=", ".join((good | fields).values()) + "\n")


def rows(**fields: str) -> Output:
    good = dict.fromkeys(readings.ROW_FIELDS, "0") | {"gpu_uuid": GPU}
    return Output(text=", ".join((good | fields).values()) + "\n")


def call(*, gpus: int = 1, of: int | None = None) -> StepCall:
    """Returns the call for a box of these GPUs on a node that has `of`."""
    uuids = [f"{GPU}-{n}" if n else GPU for n in range(of or gpus)]
    return step_call(EntryStep.GPU_HEALTH, uuids, held=gpus)


def named(results: list[CheckResult], check: str) -> CheckResult:
    (found,) = [each for each in results if each.check == check]
    return found


def health(*, gpus: Output | None = None, remapped: Output | None = None, xids: XidLog | None = None) -> list[CheckResult]:
    commands = {"gpus": gpus or smi(), "rows": remapped or rows()}
    return verdicts.gpu_health(call(), ProbeOutput(commands=commands, xids=xids or XidLog()), None)


@pytest.mark.parametrize(
    ("check", "cell", "verdict"),
    [
        ("gpu_temperature", "87", PASS),
        ("gpu_temperature", "88", FAIL),
        ("ecc_uncorrected", "0", PASS),
        ("ecc_uncorrected", "1", FAIL),
        ("ecc_sram_uncorrected", "0", PASS),
        ("ecc_sram_uncorrected", "1", FAIL),
        ("ecc_sram_corrected", "10000", PASS),
        ("ecc_sram_corrected", "10001", FAIL),
        ("ecc_dram_corrected", "20000000", PASS),
        ("ecc_dram_corrected", "20000001", FAIL),
        ("throttle_reasons", "0x0000000000000005", PASS),  # idle, and the power cap that was set
        ("throttle_reasons", "0x0000000000000088", WARN),
        *(
            (check, cell, SKIP)
            for check in SMI
            if check not in ("throttle_reasons", "gpu_memory_used")
            for cell in (N_A, "", "[Not Supported]")
        ),
    ],
)
def test_each_counter_of_a_gpu_has_its_verdict_and_one_that_is_not_told_is_no_pass(check: str, cell: str, verdict: Verdict) -> None:
    result = named(health(gpus=smi(**{SMI[check]: cell})), check)

    assert (result.verdict, result.gpu) == (verdict, GPU)


@pytest.mark.parametrize(
    ("check", "cell", "verdict"),
    [
        ("rows_uncorrectable", "512", PASS),
        ("rows_uncorrectable", "513", FAIL),
        ("rows_pending", "0", PASS),
        ("rows_pending", "1", FAIL),
        ("rows_pending", "Yes", FAIL),
        ("rows_failed", "No", PASS),
        ("rows_failed", "1", FAIL),
        ("rows_failed", "Yes", FAIL),
        *((check, cell, SKIP) for check in ROWS for cell in (N_A, "", "[Not Supported]", "maybe")),
    ],
)
def test_each_counter_of_remapped_rows_has_its_verdict(check: str, cell: str, verdict: Verdict) -> None:
    result = named(health(remapped=rows(**{ROWS[check]: cell})), check)

    assert (result.verdict, result.gpu) == (verdict, GPU)


@pytest.mark.parametrize("remapped", [Output(error="nvidia-smi: exit code 2: Field is not a valid field"), Output(text="")])
def test_a_gpu_before_ampere_has_no_remapped_rows_and_is_not_failed_for_it(remapped: Output) -> None:
    results = verdicts.gpu_health(of_shape("V100-32GB"), ProbeOutput(commands={"gpus": smi(), "rows": remapped}), None)

    assert {named(results, check).verdict for check in ROWS} == {SKIP}
    assert is_good(tuple(results))


@pytest.mark.parametrize("remapped", [Output(error="nvidia-smi: exit code 9: driver"), Output(text="")])
def test_a_gpu_that_remaps_rows_is_not_called_healthy_where_nothing_is_told_of_them(remapped: Output) -> None:
    results = health(remapped=remapped, gpus=smi(**{SMI["gpu_temperature"]: "200"}))

    told = named(results, "rows_told")
    assert (told.verdict, told.gpu) == (FAIL, GPU)
    assert (remapped.error or "nothing") in told.text
    assert named(results, "gpu_temperature").verdict is FAIL


def test_of_several_gpus_that_alone_fails_which_does_not_tell_of_its_rows() -> None:
    other = smi(uuid=f"{GPU}-1", **{"pci.bus_id": "00000000:43:00.0"})
    document = ProbeOutput(commands={"gpus": Output(text=smi().text + other.text), "rows": rows()}, xids=XidLog(uptime_s=9200.0))

    results = verdicts.gpu_health(call(gpus=2), document, None)

    assert {each.gpu for each in results if each.verdict is FAIL} == {f"{GPU}-1"}


def of_shape(shape: str) -> StepCall:
    found = call()
    view = msgspec.structs.replace(found.node.view, shape=shape)
    return msgspec.structs.replace(found, node=msgspec.structs.replace(found.node, view=view))


LOST, UNKNOWN = "[GPU is lost]", "[Unknown Error]"


@pytest.mark.parametrize("cell", [LOST, UNKNOWN])
@pytest.mark.parametrize("field", ["temperature.gpu", "memory.used", "ecc.errors.uncorrected.volatile.total"])
def test_a_gpu_that_answers_a_vital_question_with_an_error_is_not_healthy(field: str, cell: str) -> None:
    results = health(gpus=smi(**{field: cell}))

    assert (named(results, "gpu_faults").verdict, named(results, "gpu_faults").gpu) == (FAIL, GPU)
    assert f"{field} {cell}" in named(results, "gpu_faults").text


@pytest.mark.parametrize("cell", [LOST, UNKNOWN])
def test_a_gpu_that_answers_nothing_but_errors_is_neither_healthy_nor_counted(cell: str) -> None:
    lost = Output(text=", ".join([cell] * len(readings.GPU_FIELDS)) + "\n")

    assert not is_good(tuple(health(gpus=lost)))
    (count,) = verdicts.gpu_count(call(), ProbeOutput(commands={"gpus": lost}), None)
    assert (count.verdict, count.value) == (FAIL, 0.0)


def test_remapped_rows_that_are_answered_with_an_error_fail_their_gpu() -> None:
    assert named(health(remapped=rows(**{ROWS["rows_pending"]: UNKNOWN})), "gpu_faults").verdict is FAIL


def test_of_a_gpu_that_answers_no_fault_is_told() -> None:
    assert not [each for each in health() if each.check == "gpu_faults"]


def xid_log(*xids: int, bus: str = "1b", at_s: float = 9000.0) -> XidLog:
    lines = [f"<4>[ {at_s:.6f}] NVRM: Xid (PCI:0000:{bus}:00): {xid}, pid=17, name=python, what happened" for xid in xids]
    return XidLog(text="\n".join(lines), uptime_s=9200.0)


@pytest.mark.parametrize("xid", sorted(readings.XIDS_OF_GPUS))
def test_an_xid_that_tells_of_broken_hardware_fails_its_gpu(xid: int) -> None:
    result = named(health(xids=xid_log(xid, 31)), "xid_errors")

    assert (result.verdict, result.value, result.gpu) == (FAIL, 1.0, GPU)
    assert f"Xid {xid}: " in result.text


# Azure's node health checks fail a node for each of these; 63 alone is left to the reading of remapped rows, which says how it ended.
AZURE = {48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120}


def test_all_that_providers_refuse_a_node_for_is_refused_but_a_row_that_was_remapped() -> None:
    assert AZURE - set(readings.XIDS_OF_GPUS) == {63}
    assert set(readings.XIDS_OF_GPUS).isdisjoint(readings.XIDS_OF_PROGRAMS)


@pytest.mark.parametrize(
    ("log", "verdict", "said"),
    [
        (XidLog(uptime_s=9200.0), PASS, ""),
        (xid_log(*sorted(readings.XIDS_OF_PROGRAMS)), PASS, ""),
        (xid_log(79, bus="43"), PASS, ""),  # another GPU's
        (xid_log(79, at_s=1000.0), PASS, ""),  # more than two hours ago
        (xid_log(999), PASS, "Xid 999: not in the catalog"),
        (XidLog(text="[ 9000.0] NVRM: Xid (PCI:00", uptime_s=9200.0), PASS, ""),
        (XidLog(error="the kernel's log cannot be read: Operation not permitted"), SKIP, "Operation not permitted"),
        (xid_log(79, 48), FAIL, "Xid 48: look at the errors beside it; Xid 79: reboot the node"),
    ],
)
def test_the_kernel_s_log_is_judged_by_what_is_the_gpu_s_own_and_of_late(log: XidLog, verdict: Verdict, said: str) -> None:
    result = named(health(xids=log), "xid_errors")

    assert result.verdict is verdict
    assert said in result.text


@pytest.mark.parametrize(("since_repair_s", "verdict"), [(100.0, PASS), (300.0, FAIL)])
def test_an_xid_from_before_the_node_was_repaired_is_over(since_repair_s: float, verdict: Verdict) -> None:
    repaired = msgspec.structs.replace(call(), since_repair_s=since_repair_s)
    document = ProbeOutput(commands={"gpus": smi(), "rows": rows()}, xids=xid_log(79))  # 200 s ago

    assert named(verdicts.gpu_health(repaired, document, None), "xid_errors").verdict is verdict


IDLE_SMI = SMI["gpu_memory_used"]


@pytest.mark.parametrize(
    ("used_mib", "processes", "memory", "busy"),
    [("4", "", PASS, PASS), ("256", "", PASS, PASS), ("257", "", FAIL, PASS), ("4", f"{GPU}, 17\n", PASS, FAIL)],
)
def test_a_gpu_is_idle_without_processes_and_memory_in_use(used_mib: str, processes: str, memory: Verdict, busy: Verdict) -> None:
    document = ProbeOutput(commands={"gpus": smi(**{IDLE_SMI: used_mib}), "processes": Output(text=processes)})

    results = verdicts.gpu_idle(call(), document, None)

    assert (named(results, "gpu_memory_used").verdict, named(results, "gpu_processes").verdict) == (memory, busy)


@pytest.mark.parametrize(
    ("gpus", "processes"),
    [
        (smi(**{IDLE_SMI: N_A}), Output()),
        (Output(text="No devices were found\n"), Output()),
        (Output(error="nvidia-smi: exit code 9"), Output()),
        (smi(), Output(error="nvidia-smi: exit code 9")),
        (smi(), None),
    ],
)
def test_a_gpu_of_which_it_is_not_told_whether_it_is_idle_is_not_called_so(gpus: Output, processes: Output | None) -> None:
    commands = {"gpus": gpus} | ({"processes": processes} if processes else {})

    with pytest.raises(Unreadable):
        verdicts.gpu_idle(call(), ProbeOutput(commands=commands), None)


NAME, API, PEER = verdicts.NAME, f"{verdicts.NAME}:443", "10.1.2.3:53"
GOOD_REACH = {NAME: Reach(ms=1.5), API: Reach(ms=0.5), PEER: Reach(ms=0.4)}


@pytest.mark.parametrize(
    ("check", "of", "reach", "verdict"),
    [
        ("dns_time", NAME, Reach(ms=2000.0), PASS),
        ("dns_time", NAME, Reach(ms=2001.0), FAIL),
        ("dns_time", NAME, Reach(error="Temporary failure in name resolution"), FAIL),
        ("dns_time", NAME, Reach(), SKIP),
        ("service_time", API, Reach(ms=1001.0), FAIL),
        ("service_time", API, Reach(error="timed out"), FAIL),
        ("peer_time", PEER, Reach(ms=1000.0), PASS),
        ("peer_time", PEER, Reach(ms=1001.0), FAIL),
        ("peer_time", PEER, Reach(error="No route to host"), FAIL),
    ],
)
def test_each_way_of_the_network_has_its_verdict(check: str, of: str, reach: Reach, verdict: Verdict) -> None:
    result = named(_network(GOOD_REACH | {of: reach}), check)

    assert result.verdict is verdict
    assert reach.error in result.text


def test_one_pod_of_another_node_that_answers_is_enough_and_none_that_runs_is_said() -> None:
    other = "10.1.2.4:53"
    assert named(_network(GOOD_REACH | {other: Reach(error="timed out")}), "peer_time").verdict is PASS
    assert named(_network({NAME: Reach(ms=1.0), API: Reach(ms=1.0)}), "peer_time").verdict is SKIP


def _network(reached: Mapping[str, Reach]) -> list[CheckResult]:
    addresses = {name: reach for name, reach in reached.items() if name != NAME}
    return verdicts.network(call(), ProbeOutput(names={NAME: reached[NAME]}, addresses=addresses), None)


GOOD_VOLUME = Volume(bytes=64_000_000, write_s=1.0, read_s=1.0, is_same=True)


@pytest.mark.parametrize(
    ("check", "volume", "verdict"),
    [
        ("volume_write", GOOD_VOLUME, PASS),
        ("volume_write", msgspec.structs.replace(GOOD_VOLUME, write_s=6.5), FAIL),
        ("volume_read", msgspec.structs.replace(GOOD_VOLUME, read_s=6.5), FAIL),
        ("volume_read", msgspec.structs.replace(GOOD_VOLUME, read_s=0.0), SKIP),
        ("volume_content", GOOD_VOLUME, PASS),
        ("volume_content", msgspec.structs.replace(GOOD_VOLUME, is_same=False), FAIL),
        ("volume_wait", GOOD_VOLUME, SKIP),
    ],
)
def test_each_figure_of_a_volume_has_its_verdict(check: str, volume: Volume, verdict: Verdict) -> None:
    assert named(verdicts.storage(call(), ProbeOutput(volume=volume), None), check).verdict is verdict


@pytest.mark.parametrize(("placed_s", "verdict"), [(120, PASS), (121, FAIL)])
def test_how_long_a_pod_waited_for_its_volume_has_its_verdict(placed_s: int, verdict: Verdict) -> None:
    made_at = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    placed = Condition(type="PodScheduled", status="True", lastTransitionTime=made_at + timedelta(seconds=placed_s))
    pod = Pod(metadata=Meta(name="check", creationTimestamp=made_at), status=PodStatus(conditions=(placed,)))

    assert named(verdicts.storage(call(), ProbeOutput(volume=GOOD_VOLUME), pod), "volume_wait").verdict is verdict


def test_a_volume_of_which_nothing_is_told_is_no_pass() -> None:
    with pytest.raises(Unreadable):
        verdicts.storage(call(), ProbeOutput(), None)


PORT = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "gids/0": "fe80:0000:0000:0000:a088:c203:0012:3456"}


@pytest.mark.parametrize(
    ("check", "port", "verdict"),
    [
        ("rdma_links", PORT, PASS),
        ("rdma_links", PORT | {"state": "2: INIT"}, FAIL),
        ("rdma_links", PORT | {"phys_state": "3: Disabled"}, FAIL),
        ("rdma_links", {}, FAIL),
        ("rdma_links", PORT | {"state": "error: [Errno 22] Invalid argument"}, FAIL),
        ("rdma_rate", PORT, PASS),
        ("rdma_rate", PORT | {"rate": "200 Gb/sec (4X HDR)"}, FAIL),
        ("rdma_rate", PORT | {"rate": "unknown"}, SKIP),
    ],
)
def test_each_reading_of_rdma_has_its_verdict(check: str, port: dict[str, str], verdict: Verdict) -> None:
    files = {f"/sys/class/infiniband/mlx5_0/ports/1/{name}": text for name, text in port.items()}

    assert named(verdicts.rdma(call(), ProbeOutput(files=files), None), check).verdict is verdict


def report(*, time_us: float = 21.0, bus_bw: float = 470.0, wrong: float = 0.0) -> str:
    def size(of_bytes: int) -> dict[str, object]:
        way = {"time": time_us, "bus_bw": bus_bw, "nwrong": wrong}
        return {"size": of_bytes, "in_place": way, "out_of_place": way}

    return msgspec.json.encode({"results": [size(16), size(16 << 30)]}).decode()


@pytest.mark.parametrize(
    ("check", "said", "verdict"),
    [
        ("nccl_bandwidth", report(), PASS),
        ("nccl_bandwidth", report(bus_bw=459.0), FAIL),
        ("nccl_latency", report(), PASS),
        ("nccl_latency", report(time_us=101.0), FAIL),
        ("nccl_wrong", report(), PASS),
        ("nccl_wrong", report(wrong=1.0), FAIL),
    ],
)
def test_each_reading_of_nccl_has_its_verdict(check: str, said: str, verdict: Verdict) -> None:
    assert named(verdicts.nccl(call(gpus=2), said), check).verdict is verdict


def test_over_a_part_of_the_node_nccl_s_bandwidth_is_only_measured() -> None:
    result = named(verdicts.nccl(call(gpus=2, of=8), report(bus_bw=100.0)), "nccl_bandwidth")

    assert (result.verdict, result.value, result.threshold) == (PASS, 100.0, None)


@pytest.mark.parametrize("said", ["", "NCCL WARN Call to ibv_open failed", "{}"])
def test_a_report_of_nccl_that_cannot_be_read_is_no_pass(said: str) -> None:
    with pytest.raises(Unreadable):
        verdicts.nccl(call(gpus=2), said)


@pytest.mark.parametrize(("answer", "verdict"), [(smi(), PASS), (Output(text=""), FAIL), (Output(text="No devices were found"), FAIL)])
def test_fewer_gpus_than_the_box_has_fail(answer: Output, verdict: Verdict) -> None:
    assert named(verdicts.gpu_count(call(), ProbeOutput(commands={"gpus": answer}), None), "gpu_count").verdict is verdict


@pytest.mark.parametrize(("links", "verdict"), [({}, WARN), ({"rdma_links": 2.0}, FAIL)])
def test_a_port_that_is_down_is_warned_of_and_fails_where_a_policy_counts_it(links: dict[str, float], verdict: Verdict) -> None:
    ports = {"mlx5_0": PORT, "mlx5_1": PORT | {"state": "1: DOWN"}}
    files = {f"/sys/class/infiniband/{name}/ports/1/{file}": text for name, port in ports.items() for file, text in port.items()}
    found = step_call(EntryStep.RDMA, (GPU,), policy=CheckPolicy(limits=links))

    result = named(verdicts.rdma(found, ProbeOutput(files=files), None), "rdma_links")

    assert (result.verdict, result.value, result.text) == (verdict, 1.0, "down: mlx5_1/1")


@pytest.mark.parametrize(
    ("shape", "nccl_gbs", "rdma_gbps"),
    [
        ("H100-80GB", 460.0, 400.0),
        ("H200-141GB", 431.0, 400.0),
        ("A100-80GB", 228.0, 200.0),
        *((shape, None, 100.0) for shape in ("H100-PCIe-80GB", "H100-NVL-94GB", "H200-NVL-141GB", "A100-PCIe-40GB", "L40S-48GB")),
    ],
)
def test_cards_are_not_measured_by_what_boards_of_the_same_model_reach(shape: str, nccl_gbs: float | None, rdma_gbps: float) -> None:
    policy = CheckPolicy()

    assert (threshold_of("nccl_bandwidth", shape, policy), threshold_of("rdma_rate", shape, policy)) == (nccl_gbs, rdma_gbps)
    assert threshold_of("nccl_bandwidth", shape, CheckPolicy(limits={"nccl_bandwidth": 25.0})) == 25.0


def test_a_bandwidth_without_a_limit_is_told_and_says_that_nothing_was_asked_of_it() -> None:
    found = of_shape("H100-PCIe-80GB")

    bandwidth = named(verdicts.nccl(found, json.dumps(nccl_report(30.0))), "nccl_bandwidth")

    assert (bandwidth.verdict, bandwidth.value) == (PASS, 30.0)
    assert "no limit is known" in bandwidth.text

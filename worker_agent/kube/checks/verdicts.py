"""Turns the output of check Jobs into results: readings.py parses it, protocol/nodes/check_limits.py judges it. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from protocol.cluster_names import DRAINING, FREE, NODE_SLICE, TAINT, box_label, box_of
from protocol.decoding import decode
from protocol.nodes.check_limits import expect, judge, skipped
from protocol.nodes.checks import CheckPolicy, CheckResult, Verdict
from worker_agent.cluster.base import GpuPhase, StepCall
from worker_agent.kube.api.objects import Node, Pod
from worker_agent.kube.checks import readings

NAME: Final = "kubernetes.default.svc"

Results = list[CheckResult]


class Output(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    error: str = ""


class XidLog(Output, frozen=True, kw_only=True):
    uptime_s: float = 0.0


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int
    write_s: float
    read_s: float
    is_same: bool


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    ms: float | None = None
    error: str = ""
    is_found: bool = True  # its name has an address


class GangReaches(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    peers: dict[int, Reach]  # by index, those that this pod asked


class ProbeOutput(msgspec.Struct, frozen=True, kw_only=True):
    """probes/probe.py prints it."""

    commands: dict[str, Output] = {}
    files: dict[str, str] = {}
    xids: XidLog = XidLog()
    volume: Volume | None = None
    names: dict[str, Reach] = {}
    addresses: dict[str, Reach] = {}
    gang: GangReaches | None = None


class Unreadable(Exception):
    """The output cannot be read, or says that a tool failed. The message is for people."""


def document(output: str) -> ProbeOutput:
    """Reads the last line. Raises Unreadable."""
    last = output.strip().rpartition("\n")[2]
    try:
        return decode(last, ProbeOutput)
    except msgspec.DecodeError as error:
        raise Unreadable(f"its output cannot be read ({error}): {last[-300:]}") from error


def _output(document: ProbeOutput, command: str) -> str:
    """Raises Unreadable where the command failed."""
    output = document.commands.get(command, Output(error=f"{command} is missing"))
    if output.error:
        raise Unreadable(output.error)
    return output.text


def gpus_seen(document: ProbeOutput) -> list[readings.SmiReading]:
    """The result is empty when nvidia-smi failed."""
    return readings.gpus(document.commands.get("gpus", Output()).text)


def gpu_count(call: StepCall, document: ProbeOutput, pod: Pod | None) -> Results:
    found = [gpu for gpu in readings.gpus(_output(document, "gpus")) if not gpu.is_lost]
    return [expect("gpu_count", len(found), len(call.assignment.gpus), is_least=True)]


def gpus_there(call: StepCall) -> int:
    """Counts the box's GPUs that the node offers."""
    view, own = call.node.view, call.assignment.gpus
    if not view.gpus:  # its labels are gone
        return len(own)
    # GPUs that another box holds do not count.
    others = sum(record.phase is not GpuPhase.FREE for gpu, record in call.node.records.items() if gpu not in own)
    return max(0, min(len(own), sum(gpu.healthy for gpu in view.gpus) - others))


def missing(call: StepCall) -> Results:
    there, wanted = gpus_there(call), len(call.assignment.gpus)
    if there >= wanted:
        return []
    # At an exit this only warns: it is no reason to keep the other GPUs.
    told = expect("gpu_count", there, wanted, is_least=True, text="the node offers no more")
    return [msgspec.structs.replace(told, verdict=Verdict.WARN)]


def _gpus_of_box(call: StepCall, document: ProbeOutput, wanted: int) -> list[readings.SmiReading]:
    """Raises Unreadable where some are missing."""
    found = readings.gpus(_output(document, "gpus"))
    if len(found) < wanted:
        raise Unreadable(f"nvidia-smi tells of {len(found)} of {wanted} GPUs")
    return found


def gpu_health(call: StepCall, document: ProbeOutput, pod: Pod | None) -> Results:
    found = _gpus_of_box(call, document, len(call.assignment.gpus))
    rows, why_untold = _rows(document)
    must_tell = readings.remaps_rows(call.node.view.shape)
    xids = [xid for xid in readings.xids(document.xids.text, document.xids.uptime_s) if xid.age_s <= call.since_repair_s]
    return [
        result
        for gpu in found
        for result in (
            *_faults(gpu, rows.get(gpu.uuid)),
            *(_rows_missing(gpu, why_untold) if must_tell and gpu.uuid not in rows else ()),
            *_counters(call, gpu),
            *_remaps(call, gpu, rows.get(gpu.uuid)),
            _xid(call, gpu, xids, document.xids.error),
        )
    ]


def _rows(document: ProbeOutput) -> tuple[dict[str, readings.RemappedRows], str]:
    """Returns remapped rows by GPU UUID, and why others are missing."""
    output = document.commands.get("rows", Output(error="nvidia-smi was not asked"))
    return readings.remapped_rows(output.text), output.error or "nvidia-smi tells nothing of them"


def _rows_missing(gpu: readings.SmiReading, why: str) -> Results:
    # The model is known to remap rows: without figures they may be used up.
    return [expect("rows_told", 0, 1, is_least=True, gpu=gpu.uuid, text=why)]


def _faults(gpu: readings.SmiReading, rows: readings.RemappedRows | None) -> Results:
    faults = [*gpu.faults, *(rows.faults if rows else ())]
    return [expect("gpu_faults", len(faults), 0, gpu=gpu.uuid, text=", ".join(faults))] if faults else []


def _counters(call: StepCall, gpu: readings.SmiReading) -> Results:
    values = {
        "gpu_temperature": gpu.temperature_c,
        "ecc_uncorrected": gpu.ecc_uncorrected,
        "ecc_sram_uncorrected": gpu.ecc_sram_uncorrected,
        "ecc_sram_corrected": gpu.ecc_sram_corrected,
        "ecc_dram_corrected": gpu.ecc_dram_corrected,
    }
    slowed = _judge(call, "throttle_reasons", len(gpu.throttles), gpu=gpu.uuid, text=", ".join(gpu.throttles))
    return [*(_judge(call, check, value, gpu=gpu.uuid) for check, value in values.items()), slowed]


def _remaps(call: StepCall, gpu: readings.SmiReading, rows: readings.RemappedRows | None) -> Results:
    values = {  # GPUs before Ampere have none
        "rows_uncorrectable": rows.uncorrectable if rows else None,
        "rows_pending": rows.pending if rows else None,
        "rows_failed": rows.failed if rows else None,
    }
    return [_judge(call, check, value, gpu=gpu.uuid) for check, value in values.items()]


def _xid(call: StepCall, gpu: readings.SmiReading, xids: Sequence[readings.XidReading], error: str) -> CheckResult:
    if error:
        return _judge(call, "xid_errors", None, gpu=gpu.uuid, text=error)
    own = [xid.number for xid in xids if xid.bus == readings.bus_of(gpu.bus_id) and xid.number not in readings.XIDS_OF_PROGRAMS]
    bad = sorted({number for number in own if number in readings.XIDS_OF_GPUS})
    texts = [f"Xid {number}: {readings.XIDS_OF_GPUS.get(number, 'not in the catalog')}" for number in sorted(set(own))]
    return _judge(call, "xid_errors", len(bad), gpu=gpu.uuid, text="; ".join(texts))


def storage(call: StepCall, document: ProbeOutput, pod: Pod | None) -> Results:
    volume = document.volume
    if volume is None:
        raise Unreadable("it told nothing of a volume")
    megabytes = volume.bytes / 1e6
    return [
        _judge(call, "volume_wait", _wait_s(pod)),
        _judge(call, "volume_write", megabytes / volume.write_s if volume.write_s else None),
        _judge(call, "volume_read", megabytes / volume.read_s if volume.read_s else None),
        expect(
            "volume_content",
            float(volume.is_same),
            1,
            is_least=True,
            text="" if volume.is_same else "the read bytes differ from the written ones",
        ),
    ]


def _wait_s(pod: Pod | None) -> float | None:
    # A pod is bound to a node only once its volume is there.
    placed = next((each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "True"), None) if pod else None
    if pod is None or placed is None or placed.lastTransitionTime is None or pod.metadata.creationTimestamp is None:
        return None
    return (placed.lastTransitionTime - pod.metadata.creationTimestamp).total_seconds()


def network(call: StepCall, document: ProbeOutput, pod: Pod | None) -> Results:
    peers = {address: reach for address, reach in document.addresses.items() if not address.startswith(NAME)}
    results = [_reach(call, "dns_time", name, reach) for name, reach in document.names.items()]
    results += [_reach(call, "service_time", name, reach) for name, reach in document.addresses.items() if name not in peers]
    if not peers:
        return [*results, skipped("peer_time", "no pod of the cluster's DNS runs on another node")]
    # One answer shows that the network works; a pod that does not answer may itself be broken.
    took_ms = {address: reach.ms for address, reach in peers.items() if reach.ms is not None}
    best = min(took_ms or peers, key=lambda address: took_ms.get(address, 0.0))
    return [*results, _reach(call, "peer_time", best, peers[best])]


def _reach(call: StepCall, check: str, name: str, reach: Reach) -> CheckResult:
    found = _judge(call, check, reach.ms, text=reach.error or name)
    return msgspec.structs.replace(found, verdict=Verdict.FAIL) if reach.error else found


def rdma(call: StepCall, document: ProbeOutput, pod: Pod | None) -> Results:
    ports = readings.ports(document.files)
    up = [port for port in ports if port.is_up]
    down = ", ".join(port.name for port in ports if not port.is_up)
    rates = [port.rate_gbps for port in up if port.rate_gbps is not None]
    links = _judge(call, "rdma_links", len(up), text=f"down: {down}" if down else "")
    if down and links.verdict is Verdict.PASS:
        links = msgspec.structs.replace(links, verdict=Verdict.WARN)  # it is not known whether these ports are in use
    return [
        links,
        _judge(call, "rdma_rate", min(rates, default=None)),
        _subnet(call.assignment.checks, up),
    ]


def _subnet(policy: CheckPolicy, up: Sequence[readings.Port]) -> CheckResult:
    """Counts the ports outside the subnet of the policy."""
    found = sorted({subnet for port in up for subnet in port.subnets})
    foreign = [port.name for port in up if policy.rdma_subnet not in port.subnets] if policy.rdma_subnet else []
    text = ", ".join(found) or "none"
    text += f", to be {policy.rdma_subnet}" if policy.rdma_subnet else ""
    return expect("rdma_subnet", len(foreign), 0, text=f"{text}: {', '.join(foreign)}" if foreign else text)


def nccl(call: StepCall, output: str) -> Results:
    try:
        read = readings.nccl(output.strip().rpartition("\n")[2].encode())
    except ValueError as error:
        raise Unreadable(str(error)) from error
    is_whole = len(call.assignment.gpus) == len(call.node.view.gpus)
    bandwidth = _judge(call, "nccl_bandwidth", read.bandwidth_gbs)
    if bandwidth.threshold is None:
        bandwidth = msgspec.structs.replace(bandwidth, text="no limit is known for this model: only measured, unless a policy sets one")
    if not is_whole:
        # Thresholds are known only for all GPUs of a node together.
        bandwidth = msgspec.structs.replace(
            bandwidth, verdict=Verdict.PASS, threshold=None, text="over a part of the node's GPUs: only measured"
        )
    return [bandwidth, _judge(call, "nccl_latency", read.latency_us), _judge(call, "nccl_wrong", read.wrong)]


def gpu_idle(call: StepCall, document: ProbeOutput, pod: Pod | None) -> Results:
    busy, gpus = readings.processes(_output(document, "processes")), _gpus_of_box(call, document, gpus_there(call))
    # Processes of other pods are not visible inside a pod, so only the memory in use shows them.
    if silent := [gpu.uuid for gpu in gpus if gpu.memory_used_mib is None]:
        raise Unreadable(f"nvidia-smi does not tell how much memory is in use on {', '.join(silent)}")
    told = [
        result
        for gpu in gpus
        for result in (
            _judge(call, "gpu_processes", busy.get(gpu.uuid, 0), gpu=gpu.uuid),
            _judge(call, "gpu_memory_used", gpu.memory_used_mib, gpu=gpu.uuid),
        )
    ]
    return [*told, *missing(call)]


def _judge(call: StepCall, check: str, value: float | None, *, gpu: str = "", text: str = "") -> CheckResult:
    return judge(check, value, shape=call.node.view.shape, policy=call.assignment.checks, gpu=gpu, text=text)


def marks_left(node: Node, call: StepCall) -> list[str]:
    """Returns labels and taints of the box that are still on the node."""
    assignment, labels = call.assignment, node.metadata.labels or {}
    taints = [taint.value for taint in node.spec.taints if taint.key == TAINT]
    box, own = box_of(assignment.gpr_id, assignment.run), box_label(assignment.gpr_id)
    left = [own] if labels.get(own) == str(assignment.run) else []
    left += [f"{TAINT}={box}"] if box in taints else []
    left += [NODE_SLICE] if taints in ([FREE], [DRAINING]) and NODE_SLICE in labels else []
    return left if taints else [*left, f"no taint {TAINT}"]

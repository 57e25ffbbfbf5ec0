"""Turns what exporters say into readings of the inventory's GPUs, with rates of counters. Pure, but for what it remembers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from protocol.gpus.exporters import SOURCES, Reads
from protocol.gpus.telemetry import FAULT_TOTALS, METRICS, SUMMED_OVER_PARTS, XIDS_MAX, GpuReading
from protocol.gpus.xids import new_xids
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState
from worker_agent.telemetry.exposition import DeviceRow
from worker_agent.telemetry.pod_devices import PodDevices
from worker_agent.telemetry.told_xids import Device, ToldXid

FORGET_S: Final = 900.0  # counters of a GPU that nobody reports any more
TOGETHER_S: Final = 300.0  # an exporter and a condition or Event that tell of an Xid within this time mean the same
TOLD_S: Final = 300.0  # so long a GPU without an exporter has readings, of the Xids that its node is told to have

NONE: Final[Mapping[int, int]] = {}

Values = dict[str, float]
ToldOf = Mapping[str, Sequence[ToldXid]]  # by node
NodeGpu = tuple[str, str]
Buses = dict[NodeGpu, str]  # bus ids as exporters told them: warnings of a GPU that fell off its bus have no other name
Counted = dict[int, tuple[int, float]]  # each Xid's count, and since when it is so
BoxOfPod = Callable[[str, str], str]  # namespace and pod -> the id of its GPR, or ""


class Counters:
    """Holds the last values of each GPU's counters."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, dict[str, float], Mapping[int, int]]] = {}
        self._turned: dict[str, dict[int, tuple[float, float]]] = {}  # by device and Xid: in which time the gauge turned to it

    def with_told(
        self, device: str, raw: Mapping[str, float], xid_counts: Mapping[int, int], told: Iterable[ToldXid], at_s: float
    ) -> Mapping[int, int]:
        """Adds Xids that a node is told to have, but for those that the gauge told of. Ask it of each reading before `take`."""
        xid, is_new = int(raw.get("xid", 0)), device not in self._turned
        turned = self._turned.setdefault(device, {})
        before = int(self._last[device][1].get("xid", 0)) if device in self._last else 0
        if xid and (is_new or xid != before):
            turned[xid] = (0.0 if is_new else at_s - TOGETHER_S, at_s + TOGETHER_S)
        found = dict(xid_counts)
        for each in told:
            begin_s, end_s = turned.get(each.number, (math.inf, -math.inf))
            is_one_the_same = begin_s <= each.last_s and each.first_s <= end_s
            if count := each.count - is_one_the_same:
                found[each.number] = max(count, found.get(each.number, 0))
        return dict(sorted(found.items())[:XIDS_MAX])

    def take(
        self, device: str, raw: Mapping[str, float], rates: Mapping[str, float], at_s: float, xid_counts: Mapping[int, int] = NONE
    ) -> Values:
        """Returns `raw` with rates of the counters `rates`, and `new_faults`. A counter that fell has begun anew."""
        values = dict(raw)
        now = {**rates, **{name: raw[name] for name in (*FAULT_TOTALS, "xid") if name in raw}}
        before_s, before, counts_before = self._last.get(device, (0.0, {}, {}))
        self._last[device] = (at_s, now, xid_counts)
        passed_s = at_s - before_s
        if not before or passed_s <= 0:
            return values
        for name, value in rates.items():
            if name in before and value >= before[name]:
                values[name] = (value - before[name]) / passed_s
        grown = [max(0.0, raw[name] - before[name]) for name in FAULT_TOTALS if name in raw and name in before]
        xid, xid_before = (int(known["xid"]) if "xid" in known else None for known in (raw, before))
        xids = new_xids(xid if xid_before is not None else None, xid_counts, xid_before, counts_before)
        if grown or xids or xid is not None:
            values["new_faults"] = sum(grown) + sum(xids.values())
        return values

    def forget(self, at_s: float) -> None:
        self._last = {device: known for device, known in self._last.items() if at_s - known[0] < FORGET_S}
        self._turned = {device: turned for device, turned in self._turned.items() if device in self._last}


def readings(
    rows: Sequence[DeviceRow],
    nodes: Mapping[str, NodeState],
    *,
    node: str,
    box_of_pod: BoxOfPod,
    counters: Counters,
    devices: PodDevices,
    told_of: ToldOf,
    buses: Buses,
    at_s: float,
) -> Iterator[GpuReading]:
    """`node`: where the exporter runs, or "" if its rows say so themselves. `devices` learns which pod has which GPU, `buses` which bus."""
    by_node: dict[str, dict[str, list[DeviceRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_node[node or row.node][row.uuid or f"{row.bus_id}#{row.index}"].append(row)
    for name, by_device in by_node.items():
        state = nodes.get(name)
        told = told_of.get(name, ())
        for gpu, device, parts in _joined(state, by_device, box_of_pod) if state else ():
            for row in parts:
                if row.pod:
                    devices.take(row.namespace, row.pod, gpu)
            raw, rates = _merged(parts)
            if state and parts[0].bus_id and not _is_shared(state):
                buses[name, gpu] = parts[0].bus_id
            names, gpu_count = Device(parts[0].uuid, parts[0].bus_id, parts[0].index), len(state.view.gpus) if state else 0
            of_it = [each for each in told if each.is_of(names, gpu_count=gpu_count)]
            xid_counts = counters.with_told(f"{name}/{device}", raw, _xid_counts(parts), of_it, at_s)
            values = counters.take(f"{name}/{device}", raw, rates, at_s, xid_counts)
            yield GpuReading(name, gpu, at_s, _bounded(values), tuple(sorted(xid_counts.items())))


class Unread:
    """Readings of GPUs that no exporter tells of, while their node is told to have Xids: a GPU that fell off the bus has no other."""

    def __init__(self) -> None:
        self._seen: dict[NodeGpu, Counted] = {}

    def readings(
        self, nodes: Mapping[str, NodeState], told_of: ToldOf, read: Collection[NodeGpu], buses: Buses, at_s: float
    ) -> Iterator[GpuReading]:
        """`read`: nodes and GPUs with a reading. GPUs of shared nodes are left out: nobody knows whose they are."""
        seen: dict[NodeGpu, Counted] = {}
        for name, told in told_of.items():
            state = nodes[name]
            for gpu in state.view.gpus if not _is_shared(state) else ():
                names = Device(gpu.hardware_uuid, buses.get((name, gpu.uuid), ""), gpu.index)
                of_it = [each for each in told if each.is_of(names, gpu_count=len(state.view.gpus))]
                if of_it:
                    seen[name, gpu.uuid] = _counted(of_it, self._seen.get((name, gpu.uuid), {}), at_s)
        for (name, uuid), counted in seen.items():
            news = [(number, count) for number, (count, since_s) in sorted(counted.items()) if at_s - since_s < TOLD_S]
            if news and (name, uuid) not in read:
                yield GpuReading(name, uuid, at_s, _bounded({}), tuple(news[:XIDS_MAX]))
        for name, uuid in self._seen.keys() - seen.keys() - set(read):
            if name in nodes and not _is_shared(nodes[name]):  # the hub would take the next one for the same
                yield GpuReading(name, uuid, at_s, _bounded({}))
        self._seen = seen


def _counted(told: Iterable[ToldXid], before: Counted, at_s: float) -> Counted:
    counted: Counted = {}
    for each in told:
        count = max(each.count, counted.get(each.number, (0, 0.0))[0])
        count_before, since_s = before.get(each.number, (0, at_s))
        counted[each.number] = (count, since_s if count <= count_before else at_s)
    return counted


def _bounded(values: Values) -> tuple[float | None, ...]:
    return tuple(
        round(value, 2) if (value := values.get(metric.name)) is not None and 0 <= value <= metric.most else None for metric in METRICS
    )


# -- which GPU ---------------------------------------------------------------------------------------------------------

Joined = Iterator[tuple[str, str, Sequence[DeviceRow]]]


def _joined(state: NodeState, devices: Mapping[str, Sequence[DeviceRow]], box_of_pod: BoxOfPod) -> Joined:
    """Yields the inventory's GPU, the exporter's name for the device, and its rows.

    If boxes share a node, the kubelet chooses the GPUs of a box, and only the labels of pods name them. Without labels a held GPU has no
    reading, since it might be another workspace's.
    """
    if _is_shared(state):
        yield from _joined_by_pods(state, devices, {uuid: record.gpr_id for uuid, record in _held(state).items()}, box_of_pod)
        return
    by_uuid = {name: gpu.uuid for gpu in state.view.gpus for name in (gpu.uuid, gpu.hardware_uuid) if name}
    by_index: dict[int | None, str] = {gpu.index: gpu.uuid for gpu in state.view.gpus}
    places = _places(devices, len(state.view.gpus))
    taken: set[str] = set()
    for device, parts in devices.items():
        index = parts[0].index if parts[0].index is not None else places.get(device)
        found = by_uuid.get(parts[0].uuid) or by_index.get(index)
        if found and found not in taken:
            taken.add(found)
            yield found, device, parts


def _held(state: NodeState) -> dict[str, GpuRecord]:
    return {uuid: record for uuid, record in state.records.items() if record.phase is not GpuPhase.FREE}


def _is_shared(state: NodeState) -> bool:
    held = _held(state)
    boxes = {record.assignment_id for record in held.values()}
    return bool(boxes) and (len(boxes) > 1 or len(held) < len(state.view.gpus))


def _places(devices: Mapping[str, Sequence[DeviceRow]], gpu_count: int) -> dict[str, int]:
    """Numbers GPUs by the order of their bus ids, if the exporter does not."""
    buses = {device: parts[0].bus_id for device, parts in devices.items() if parts[0].bus_id}
    if len(buses) != gpu_count:
        return {}
    return {device: place for place, device in enumerate(sorted(buses, key=lambda device: buses[device]))}


def _joined_by_pods(state: NodeState, devices: Mapping[str, Sequence[DeviceRow]], held: Mapping[str, str], box_of_pod: BoxOfPod) -> Joined:
    places: dict[str, list[str]] = defaultdict(list)
    for gpu in sorted(state.view.gpus, key=lambda gpu: gpu.index):
        places[held.get(gpu.uuid, "")].append(gpu.uuid)
    unclaimed = []
    for device, parts in sorted(devices.items()):
        pod = next((row for row in parts if row.pod), None)
        box = box_of_pod(pod.namespace, pod.pod) if pod else ""
        if box and places[box]:
            yield places[box].pop(0), device, parts
        elif pod is None:
            unclaimed.append((device, parts))
    is_each_known = not any(places[box] for box in set(held.values()))
    if is_each_known:  # else one of these may be a held GPU whose pod nobody named
        for (device, parts), uuid in zip(unclaimed, places[""], strict=False):
            yield uuid, device, parts


# -- what it says ------------------------------------------------------------------------------------------------------


def _merged(parts: Sequence[DeviceRow]) -> tuple[Values, Values]:
    """Returns values and counters by metric. Parts never add to what the whole GPU says."""
    whole = next((row for row in parts if not row.part), None)
    values, rates = _read(whole) if whole else ({}, {})
    ranked: dict[str, list[float]] = defaultdict(list)
    for row in parts:
        if row.part:
            for name, value in _read(row)[0].items():
                ranked[name].append(value)
    for name, several in ranked.items():
        values.setdefault(name, sum(several) if name in SUMMED_OVER_PARTS else max(several))
    return values, rates


def _xid_counts(parts: Sequence[DeviceRow]) -> Mapping[int, int]:
    """Parts repeat what the whole GPU says."""
    found: dict[int, int] = {}
    for row in parts:
        for number, count in row.xid_counts.items():
            found[number] = max(count, found.get(number, 0))
    return dict(sorted(found.items())[:XIDS_MAX])


def _read(row: DeviceRow) -> tuple[Values, Values]:
    best: dict[str, tuple[int, float, Reads]] = {}
    for exporter_name, value in row.values.items():
        source = SOURCES[exporter_name]
        scaled = value * source.scale
        rank, sum_, _ = best.get(source.metric, (source.rank + 1, 0.0, source.reads))
        if value < 0 and source.reads is not Reads.VALUE:
            continue  # no counter is negative
        if source.rank < rank:
            best[source.metric] = (source.rank, scaled, source.reads)
        elif source.rank == rank and source.is_part:
            best[source.metric] = (rank, sum_ + scaled, source.reads)
    values = {name: value for name, (_, value, reads) in best.items() if reads is not Reads.RATE}
    return values, {name: value for name, (_, value, reads) in best.items() if reads is Reads.RATE}

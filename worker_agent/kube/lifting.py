"""Which waiting pods fit into an open box, and the one JSON Patch that lifts a pod.

Pure. A box of whole nodes is counted as a sum and the scheduler places; on a node that several boxes share each pod is
given its node here, and GPUs, CPU, memory and pods are counted against the box's share of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from worker_agent.kube import names
from worker_agent.kube.client import Op
from worker_agent.kube.names import pointer
from worker_agent.kube.objects import CONTAINERS_MAX, GATES_MAX, RESOURCES_MAX, Meta, Node, Pod, Resources

_COUNTED = ("cpu", "memory", "pods", names.GPU)
_FREELY = ("ephemeral-storage", "hugepages-")  # neither devices nor scarce
_UNITS = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}

Amounts = Mapping[str, Decimal]


def quantity(text: str | int) -> Decimal:
    """A Kubernetes quantity, e.g. 1500m, 2Gi, 1e3. Raises ValueError for what is none."""
    stem = str(text).rstrip("numkKMGTPEi") if not str(text).isdecimal() else str(text)
    unit = str(text)[len(stem) :]
    try:
        return Decimal(stem) * _UNITS[unit]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{text!r} is no quantity") from error


def is_gpu(resource: str) -> bool:
    return resource.startswith(names.GPU_PREFIXES)


def asks_for_gpus(pod: Pod) -> bool:
    containers = (*pod.spec.containers, *pod.spec.initContainers)
    asked = {key for each in containers for key in (*each.resources.limits, *each.resources.requests)}
    return bool(pod.spec.resourceClaims) or any(is_gpu(key) for key in asked)


def needs_of(pod: Pod) -> dict[str, Decimal]:
    """What the scheduler counts: the sum of the containers, or the largest of those that run before them; overhead on top."""
    running: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for each in pod.spec.initContainers:
        asked = _asked(each.resources)
        if each.restartPolicy == "Always":
            running = _sum(running, asked)
            peak = _most(peak, running)
        else:
            peak = _most(peak, _sum(running, asked))
    for each in pod.spec.containers:
        running = _sum(running, _asked(each.resources))
    overhead = {key: quantity(value) for key, value in pod.spec.overhead.items()}
    return _sum(_sum(_most(peak, running), overhead), {"pods": Decimal(1)})


def why_never(pod: Pod) -> str:
    """Why this pod is lifted into no box at all, as a sentence, or ""."""
    if pod.spec.resourceClaims:
        return "it has resource claims, whose devices are not counted"
    if pod.spec.resources is not None:
        return "it has resources as a pod (spec.resources), which are not counted: give them to its containers"
    if pod.spec.is_cut:
        most = f"{CONTAINERS_MAX} containers, {RESOURCES_MAX} resources in one of them or {GATES_MAX} scheduling gates"
        return f"it has more than {most}: that is not counted"
    try:
        needs = needs_of(pod)
    except ValueError as error:
        return f"what it asks for cannot be read: {error}"
    strange = sorted(key for key in needs if is_gpu(key) and key != names.GPU)
    if strange:
        return f"it asks for {', '.join(strange)}, which is not counted"
    return "" if needs.get(names.GPU) else f"it asks for no {names.GPU}"


def devices_of(amounts: Iterable[str]) -> list[str]:
    """Other devices than GPUs, as of RDMA: of boxes that share a node nobody counts how many are whose, so whole nodes alone have room."""
    return sorted(key for key in amounts if key not in _COUNTED and not key.startswith(_FREELY))


@dataclass(frozen=True, slots=True)
class Room:
    """What a box has on one node. `share`: None where it has the node to itself. `devices`: others, where it is all of the box."""

    node: str
    uid: str
    taint: str
    gpu_count: int
    share: Amounts | None = None
    devices: frozenset[str] = frozenset()


def share_of(node: Node, gpu_count: int, node_gpu_count: int, others: Iterable[Pod]) -> Amounts:
    """The part of a shared node that goes with `gpu_count` of its GPUs. `others`: pods there that are no slice's."""
    taken: dict[str, Decimal] = {}
    for pod in others:
        taken = _sum(taken, needs_of(pod))
    part = Decimal(gpu_count) / Decimal(max(1, node_gpu_count))
    there = {key: quantity(node.status.allocatable.get(key, "0")) for key in ("cpu", "memory", "pods")}
    shares = {key: max(Decimal(0), value - taken.get(key, Decimal(0))) * part for key, value in there.items()}
    return {**shares, "pods": Decimal(int(shares["pods"])), names.GPU: Decimal(gpu_count)}


@dataclass(frozen=True, slots=True)
class Lift:
    """`room` None: anywhere in the box."""

    pod: Pod
    taints: tuple[str, ...]
    room: Room | None


def lifts(rooms: Sequence[Room], waiting: Sequence[Pod], inside: Sequence[Pod]) -> Iterator[Lift]:
    """`inside`: lifted pods of the box that are not over. The oldest first; what does not fit is passed over."""
    if not rooms:
        return
    if all(room.share is None for room in rooms):
        yield from _by_sum(rooms, waiting, inside)
    else:
        yield from _by_room(rooms, waiting, inside)


def _by_sum(rooms: Sequence[Room], waiting: Sequence[Pod], inside: Sequence[Pod]) -> Iterator[Lift]:
    free = sum(room.gpu_count for room in rooms) - sum(_gpus(pod) for pod in inside)
    largest = max(room.gpu_count for room in rooms)
    taints, devices = tuple(sorted({room.taint for room in rooms})), frozenset[str].intersection(*(room.devices for room in rooms))
    for pod in waiting:
        gpus = _gpus(pod)
        if gpus <= min(free, largest) and devices.issuperset(devices_of(needs_of(pod))):
            free -= gpus
            yield Lift(pod, taints, None)


def _by_room(rooms: Sequence[Room], waiting: Sequence[Pod], inside: Sequence[Pod]) -> Iterator[Lift]:
    left = {room.uid: dict(room.share or {names.GPU: Decimal(room.gpu_count)}) for room in rooms}
    for pod in inside:
        for each in rooms:
            if _may_be_in(pod, each):
                left[each.uid] = _less(left[each.uid], needs_of(pod))
    for pod in waiting:
        needs = needs_of(pod)
        room = None if devices_of(needs) else next((room for room in rooms if _fits(needs, left[room.uid])), None)
        if room is not None:
            left[room.uid] = _less(left[room.uid], needs)
            yield Lift(pod, (room.taint,), room)


def _may_be_in(pod: Pod, room: Room) -> bool:
    """One that was let in anywhere in the box, while it had its nodes to itself, may be in each room until it has a node."""
    uid = (pod.spec.nodeSelector or {}).get(names.NODE_UID, "")
    return uid == room.uid if uid else pod.spec.nodeName in ("", room.node)


def lift_ops(lift: Lift, gpr_id: str, run: int, *, ends_at: str = "") -> list[Op]:
    """`ends_at`: of the box, "" where it is not known. Raises ValueError where the pod has no gate of ours."""
    meta, spec = lift.pod.metadata, lift.pod.spec
    place = [gate.name for gate in spec.schedulingGates].index(names.GATE)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": pointer("spec", "schedulingGates", place, "name"), "value": names.GATE},
        {"op": "remove", "path": pointer("spec", "schedulingGates", place)},
    ]
    tolerations = [_toleration(taint) for taint in lift.taints]
    if spec.tolerations is None:
        ops.append({"op": "add", "path": "/spec/tolerations", "value": tolerations})
    else:
        ops += [{"op": "add", "path": "/spec/tolerations/-", "value": each} for each in tolerations]
    selector = {names.box_label(gpr_id): str(run)} | ({names.NODE_UID: lift.room.uid} if lift.room else {})
    ops += _add_all("spec", "nodeSelector", spec.nodeSelector, selector)
    ops += _add_all("metadata", "labels", meta.labels, {names.POD_GPR: gpr_id})
    return [*ops, *(annotate_ops(meta, names.ENDS_AT, ends_at) if ends_at else [])]


def annotate_ops(meta: Meta, key: str, value: str) -> list[Op]:
    """Where there was no annotation at all, none that somebody else wrote meanwhile is lost: it is a Conflict."""
    ops = _add_all("metadata", "annotations", meta.annotations, {key: value})
    return ops if meta.annotations is not None else [{"op": "test", "path": "/metadata/annotations", "value": None}, *ops]


def _toleration(taint: str) -> dict[str, str]:
    return {"key": names.TAINT, "operator": "Equal", "value": taint, "effect": names.TAINT_EFFECT}


def _add_all(parent: str, name: str, there: Mapping[str, str] | None, new: Mapping[str, str]) -> list[Op]:
    if there is None:
        return [{"op": "add", "path": pointer(parent, name), "value": dict(new)}]
    return [{"op": "add", "path": pointer(parent, name, key), "value": value} for key, value in sorted(new.items())]


# --- amounts


def _gpus(pod: Pod) -> int:
    return int(needs_of(pod).get(names.GPU, 0))


def _asked(resources: Resources) -> dict[str, Decimal]:
    """Extended resources may be given as limits alone; as requests they are the same."""
    return {key: quantity(value) for key, value in {**resources.limits, **resources.requests}.items()}


def _sum(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {key: one.get(key, Decimal(0)) + other.get(key, Decimal(0)) for key in one.keys() | other.keys()}


def _less(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {key: value - other.get(key, Decimal(0)) for key, value in one.items()}


def _most(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {key: max(one.get(key, Decimal(0)), other.get(key, Decimal(0))) for key in one.keys() | other.keys()}


def _fits(needs: Amounts, room: Amounts) -> bool:
    return all(needs.get(key, Decimal(0)) <= value for key, value in room.items())

"""Chooses which waiting pods fit into an open box, and builds the JSON Patch that lifts a pod. It is pure.

The scheduler places pods in a box of whole nodes. On a shared node each pod is assigned its node here and must request CPU and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from protocol import cluster_names
from protocol.cluster_names import GPU, pointer
from worker_agent.kube.api import devices
from worker_agent.kube.api.client import Op
from worker_agent.kube.api.objects import CONTAINERS_MAX, GATES_MAX, RESOURCES_MAX, Meta, Node, Pod, Resources

_OPTIONAL = ("ephemeral-storage", "hugepages-")  # resources that not every node reports
_REQUIRED_ON_SHARED_NODES = ("cpu", "memory")  # requests that are mandatory on a shared node
_UNITS = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}

Amounts = Mapping[str, Decimal]
NeedsOf = Callable[[Pod], Amounts]


def parse_quantity(text: str | int) -> Decimal:
    """Parses a Kubernetes quantity, e.g. 1500m, 2Gi, 1e3. Raises ValueError."""
    stem = str(text).rstrip("numkKMGTPEi") if not str(text).isdecimal() else str(text)
    unit = str(text)[len(stem) :]
    try:
        return Decimal(stem) * _UNITS[unit]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{text!r} is no quantity") from error


def asks_for_gpus(pod: Pod) -> bool:
    # An unreadable amount counts: only a zero is no request.
    resources = [each.resources for each in (*pod.spec.containers, *pod.spec.initContainers)]
    asked = [pair for each in resources for amounts in (each.limits, each.requests) for pair in amounts.items()]
    is_gpu = devices.current().is_gpu
    return bool(pod.spec.resourceClaims) or any(is_gpu(key) and not _is_none(value) for key, value in asked)


def _is_none(amount: str | int) -> bool:
    try:
        return parse_quantity(amount) == 0
    except ValueError:
        return False


def pod_needs(pod: Pod) -> dict[str, Decimal]:
    """Returns what the scheduler counts. Raises ValueError."""
    # The sum of the containers, or the peak of the init containers before them; overhead on top.
    running: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for each in pod.spec.initContainers:
        asked = _asked(each.resources)
        if each.restartPolicy == "Always":
            running = _sum(running, asked)
            peak = _maximum(peak, running)
        else:
            peak = _maximum(peak, _sum(running, asked))
    for each in pod.spec.containers:
        running = _sum(running, _asked(each.resources))
    overhead = {key: parse_quantity(value) for key, value in pod.spec.overhead.items()}
    return _sum(_sum(_maximum(peak, running), overhead), {"pods": Decimal(1)})


def why_never(pod: Pod) -> str:
    """Says why a pod can enter no box at all; "" if it can."""
    if pod.spec.resourceClaims:
        return "it has resource claims, whose devices are not counted"
    if pod.spec.resources is not None:
        return "it has resources as a pod (spec.resources), which are not counted: give them to its containers"
    if pod.spec.is_cut:
        most = f"{CONTAINERS_MAX} containers, {RESOURCES_MAX} resources in one of them or {GATES_MAX} scheduling gates"
        return f"it has more than {most}: that is not counted"
    try:
        needs = pod_needs(pod)
    except ValueError as error:
        return f"its demand cannot be read: {error}"
    strange = sorted(key for key in needs if devices.current().is_gpu(key) and key != GPU)
    if strange:
        return f"it asks for {', '.join(strange)}, which is not counted"
    return "" if needs.get(GPU) else f"it asks for no {GPU}"


def extra_devices(amounts: Iterable[str]) -> list[str]:
    """Lists devices other than GPUs, which only whole nodes provide."""
    return sorted(filter(devices.current().is_whole, amounts))


def missing_on_shared_node(needs: Amounts) -> list[str]:
    """Lists requests that a pod needs on a shared node and lacks."""
    return [key for key in _REQUIRED_ON_SHARED_NODES if not needs.get(key)]


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    node: str
    uid: str
    taint: str
    has: Amounts  # of the whole node, or the box's share of it
    is_shared: bool = False


def whole_node_amounts(node: Node, gpu_count: int, others: Iterable[Pod]) -> Amounts:
    # The node may by now have fewer GPUs than the box counts.
    left = _less({key: parse_quantity(value) for key, value in node.status.allocatable.items()}, _taken_by(others))
    return {**left, GPU: min(Decimal(gpu_count), left.get(GPU, Decimal(0)))}


def shared_node_amounts(node: Node, gpu_count: int, node_gpu_count: int, others: Iterable[Pod]) -> Amounts:
    """`others`: pods there that belong to no slice."""
    taken = _taken_by(others)
    part = Decimal(gpu_count) / Decimal(max(1, node_gpu_count))
    there = {key: parse_quantity(value) for key, value in {**_NOTHING, **node.status.allocatable}.items() if _is_shared_out(key)}
    shares = {key: max(Decimal(0), value - taken.get(key, Decimal(0))) * part for key, value in there.items()}
    whole = {key: Decimal(int(value)) for key, value in shares.items() if key == "pods" or key in devices.current().in_parts}
    return {**shares, **whole, GPU: Decimal(gpu_count)}


_NOTHING = {"cpu": "0", "memory": "0", "pods": "0"}  # for nodes that do not report them


def _is_shared_out(key: str) -> bool:
    return key == "pods" or devices.current().comes_in_parts(key)


def _taken_by(pods: Iterable[Pod]) -> Amounts:
    taken: dict[str, Decimal] = {}
    for pod in pods:
        taken = _sum(taken, pod_needs(pod))
    return taken


def why_nowhere(capacities: Sequence[NodeCapacity], needs: Amounts) -> str:
    """Says why a pod would not fit on any node, even an empty one; "" if it would."""
    if any(_may_enter(needs, capacity) and _fits(needs, capacity.has) for capacity in capacities):
        return ""
    if not any(_may_enter(needs, capacity) for capacity in capacities):
        lacking = " and no ".join(missing_on_shared_node(needs))
        return f"it asks for no {lacking}, and on a node that is shared each pod has to: give its containers requests, or take whole nodes"
    counted = [key for key in sorted(needs) if not key.startswith(_OPTIONAL) or any(key in capacity.has for capacity in capacities)]
    most = {key: max((capacity.has.get(key, Decimal(0)) for capacity in capacities), default=Decimal(0)) for key in counted}
    scarce = [key for key in counted if needs[key] > most[key]]
    if not scarce:
        return "no node there has all at once that it asks for"
    return " and ".join(f"it asks for {asks}, and no node there has more than {has}" for asks, has in _amount_texts(scarce, needs, most))


@dataclass(frozen=True, slots=True)
class Lift:
    pod: Pod
    taints: tuple[str, ...]
    capacity: NodeCapacity | None  # None: any node of the box


def lifts(
    capacities: Sequence[NodeCapacity],
    waiting: Sequence[Pod],
    inside: Sequence[Pod],
    *,
    stranded: Collection[str] = (),
    needs: NeedsOf = pod_needs,
) -> Iterator[Lift]:
    """The oldest pods come first; what does not fit is skipped.

    `inside`: lifted, unfinished pods of the box. `stranded`: UIDs of those that the scheduler fails to place. `needs`: cached `pod_needs`.
    Shapes: n nodes, m pods and k different needs take O(m + k n).
    """
    if any(capacity.is_shared for capacity in capacities):
        yield from _on_given_nodes(capacities, waiting, inside, needs)
    elif capacities:
        yield from _on_any_node(capacities, waiting, list(_counted(capacities, inside, stranded, needs)), needs)


def _counted(capacities: Sequence[NodeCapacity], inside: Sequence[Pod], stranded: Collection[str], needs: NeedsOf) -> Iterator[Pod]:
    # Leaves out as many stranded pods as would fill the box once: whatever is let in, only what fits is placed. Beyond that they
    # count, or all waiting pods would be let in while nothing can be placed. On shared nodes all count, since only the count
    # keeps boxes to their shares.
    free = sum((capacity.has.get(GPU, Decimal(0)) for capacity in capacities), Decimal(0))
    for pod in inside:
        gpus = needs(pod).get(GPU, Decimal(0))
        if pod.spec.nodeName or pod.metadata.uid not in stranded or gpus > free:
            yield pod
        else:
            free -= gpus


def _on_any_node(capacities: Sequence[NodeCapacity], waiting: Sequence[Pod], inside: Sequence[Pod], needs: NeedsOf) -> Iterator[Lift]:
    # Pods inside without a node are placed first. If one fits nowhere now, its GPUs stay reserved for it.
    left, taints = _FreeCapacity(capacities), tuple(sorted({capacity.taint for capacity in capacities}))
    left.take([pod for pod in inside if pod.spec.nodeName or _pinned_to(pod)], needs)
    anywhere = [pod for pod in inside if not (pod.spec.nodeName or _pinned_to(pod))]
    owed = sum(needs(pod).get(GPU, Decimal(0)) for pod in anywhere if left.put(needs(pod)) is None)
    free = left.gpu_count - owed
    for pod in waiting:
        gpus = needs(pod).get(GPU, Decimal(0))
        if gpus <= free and left.put(needs(pod)) is not None:
            free -= gpus
            yield Lift(pod, taints, None)


def _on_given_nodes(capacities: Sequence[NodeCapacity], waiting: Sequence[Pod], inside: Sequence[Pod], needs: NeedsOf) -> Iterator[Lift]:
    left = _FreeCapacity(capacities)
    left.take(inside, needs)
    for pod in waiting:
        if (capacity := left.put(needs(pod))) is not None:
            yield Lift(pod, (capacity.taint,), capacity)


class _FreeCapacity:
    def __init__(self, capacities: Sequence[NodeCapacity]) -> None:
        self._box_capacity, self._left = capacities, [dict(capacity.has) for capacity in capacities]
        self._places = {capacity.node: (place, capacity) for place, capacity in enumerate(capacities)}
        self._first: dict[frozenset[tuple[str, Decimal]], int] = {}  # by needs: the first node that may have enough

    @property
    def gpu_count(self) -> Decimal:
        return sum((max(Decimal(0), left.get(GPU, Decimal(0))) for left in self._left), Decimal(0))

    def take(self, pods: Iterable[Pod], needs: NeedsOf) -> None:
        # Subtracts a pod from each node where it may be: from all of them if it has no node and was let in anywhere.
        for pod in pods:
            node, uid = pod.spec.nodeName, _pinned_to(pod)
            for place, capacity in [self._places[node]] if node in self._places else [] if node else enumerate(self._box_capacity):
                if node or uid in ("", capacity.uid):
                    self._less(place, needs(pod))

    def put(self, needs: Amounts) -> NodeCapacity | None:
        # First fit. Capacity only decreases, so no node is tried again for needs that it once could not hold.
        key = frozenset(needs.items())
        place = self._first.get(key, 0)
        while place < len(self._box_capacity) and not (_fits(needs, self._left[place]) and _may_enter(needs, self._box_capacity[place])):
            place += 1
        self._first[key] = place
        if place == len(self._box_capacity):
            return None
        self._less(place, needs)
        return self._box_capacity[place]

    def _less(self, place: int, needs: Amounts) -> None:
        left = self._left[place]
        for key, value in needs.items():
            if key in left:
                left[key] -= value


def _pinned_to(pod: Pod) -> str:
    # The UID of the node assigned at the lift, "" if the pod may go anywhere in its box.
    return (pod.spec.nodeSelector or {}).get(cluster_names.NODE_UID, "")


def lift_ops(lift: Lift, gpr_id: str, run: int, *, ends_at: str = "") -> list[Op]:
    """`ends_at`: "" if unknown. Raises ValueError if the pod lacks the gate."""
    meta, spec = lift.pod.metadata, lift.pod.spec
    place = [gate.name for gate in spec.schedulingGates].index(cluster_names.GATE)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": pointer("spec", "schedulingGates", place, "name"), "value": cluster_names.GATE},
        {"op": "remove", "path": pointer("spec", "schedulingGates", place)},
    ]
    tolerations = [_toleration(taint) for taint in lift.taints]
    if spec.tolerations is None:
        ops.append({"op": "add", "path": "/spec/tolerations", "value": tolerations})
    else:
        ops += [{"op": "add", "path": "/spec/tolerations/-", "value": each} for each in tolerations]
    selector = {cluster_names.box_label(gpr_id): str(run)} | ({cluster_names.NODE_UID: lift.capacity.uid} if lift.capacity else {})
    ops += _add_all("spec", "nodeSelector", spec.nodeSelector, selector)
    ops += _add_all("metadata", "labels", meta.labels, {cluster_names.POD_GPR: gpr_id})
    return [*ops, *(annotate_ops(meta, cluster_names.ENDS_AT, ends_at) if ends_at else [])]


def annotate_ops(meta: Meta, key: str, value: str) -> list[Op]:
    # If the pod had no annotations, the test fails when somebody added some meanwhile, so that none is overwritten.
    ops = _add_all("metadata", "annotations", meta.annotations, {key: value})
    return ops if meta.annotations is not None else [{"op": "test", "path": "/metadata/annotations", "value": None}, *ops]


def unannotate_ops(key: str) -> list[Op]:
    return [{"op": "remove", "path": pointer("metadata", "annotations", key)}]


def _toleration(taint: str) -> dict[str, str]:
    return {"key": cluster_names.TAINT, "operator": "Equal", "value": taint, "effect": cluster_names.TAINT_EFFECT}


def _add_all(parent: str, name: str, there: Mapping[str, str] | None, new: Mapping[str, str]) -> list[Op]:
    if there is None:
        return [{"op": "add", "path": pointer(parent, name), "value": dict(new)}]
    return [{"op": "add", "path": pointer(parent, name, key), "value": value} for key, value in sorted(new.items())]


# --- amounts


def _asked(resources: Resources) -> dict[str, Decimal]:
    # Extended resources may be given as limits alone, which then are their requests.
    asked = {key: parse_quantity(value) for key, value in {**resources.limits, **resources.requests}.items()}
    return {key: value for key, value in asked.items() if value}


def _sum(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {key: one.get(key, Decimal(0)) + other.get(key, Decimal(0)) for key in one.keys() | other.keys()}


def _less(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {key: value - other.get(key, Decimal(0)) for key, value in one.items()}


def _maximum(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {key: max(one.get(key, Decimal(0)), other.get(key, Decimal(0))) for key in one.keys() | other.keys()}


def _may_enter(needs: Amounts, capacity: NodeCapacity) -> bool:
    return not capacity.is_shared or not missing_on_shared_node(needs)


def _fits(needs: Amounts, left: Amounts) -> bool:
    if needs.get(GPU, 0) > left.get(GPU, 0):
        return False  # the most frequent reason
    # A resource in `_OPTIONAL` that the node does not report is ignored; any other unreported resource counts as zero.
    return all(value <= max(left.get(key, 0), 0) for key, value in needs.items() if key in left or not key.startswith(_OPTIONAL))


def _amount_texts(keys: Iterable[str], needs: Amounts, most: Amounts) -> Iterator[tuple[str, str]]:
    """Yields e.g. `1000 cpu`, `512Gi memory`; smaller units if both amounts would look the same."""
    for key in keys:
        units = ((2**30, "Gi"), (2**20, "Mi"), (1, "")) if key == "memory" or key.startswith(_OPTIONAL) else ((1, ""),)
        told = ((_amount_text(needs[key], *unit, key), _amount_text(max(most[key], Decimal(0)), *unit, key)) for unit in units)
        yield next(pair for pair in told if pair[0] != pair[1])


def _amount_text(value: Decimal, size: int, unit: str, key: str) -> str:
    return (f"{value / size:.1f}".removesuffix(".0") if unit else f"{value.normalize():f}") + f"{unit} {key}"

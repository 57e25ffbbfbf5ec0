"""Builds the hub's view of a node: its shape, location and GPUs.

Shape and count come from labels of NVIDIA GPU Feature Discovery, healthy GPUs from the device plugin. Labels are not trusted: absurd values
are cut, or the node is not shown. Must not live here: any call, anything about tenants.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from protocol.cluster_names import GPU, GPU_UUIDS, ORDER, SUPPLY
from protocol.decoding import convert
from protocol.nodes.inventory import GpuView, NodeView
from protocol.scalars import Id, NodeName
from worker_agent.kube.api.objects import Condition, Node
from worker_agent.kube.nodes.conditions import PRESSURES, bad_conditions
from worker_agent.kube.nodes.hardware import stored_uuids, uuids_by_index

_PRODUCT, _MEMORY, _COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count"
_REPLICAS, _SHARING = "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
_CLIQUE: Final = "nvidia.com/gpu.clique"
_MIG_PREFIX: Final = "nvidia.com/mig-"
_NODE_TYPE, _MACHINE = "node.kubernetes.io/instance-type", "nvidia.com/gpu.machine"
_ZONE, _RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
_RDMA: Final = "feature.node.kubernetes.io/rdma.available"

MOST_GPUS: Final = 64  # four times the largest servers on the market: more is an error
_WORD_MAX: Final = 63  # the protocol's limit for short texts
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BRANDS: Final = frozenset({"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRAPHICS", "DEVICE"})
# Words of a product name that the model name leaves out: memory (the shape has it), board socket, and common suffixes.
_REST: Final = re.compile(r"\d+GB|HBM\w*|SXM\d*|GENERATION|SERVER|WORKSTATION|EDITION", re.IGNORECASE)
_PARTS: Final = re.compile(r"-(SHARED|MIG-.*)$")
# GiB that drivers report for cards without HBM while ECC is on, which takes a sixteenth, and the marketed size.
_SOLD_AS_GIB: Final = {15: 16, 19: 20, 23: 24, 30: 32, 45: 48, 90: 96}


@dataclass(frozen=True, slots=True)
class NotShown:
    why: str  # the reason why the node is not shown to the hub, as a sentence


def node_view(node: Node) -> NodeView | NotShown:
    try:
        gpus, shape = _gpus(node)
        return NodeView(
            name=_name(node),
            uid=_uid(node),
            shape=shape,
            node_type=_word(node.metadata.label(_NODE_TYPE) or node.metadata.label(_MACHINE)),
            gpus=gpus,
            ready=not why_unready(node),
            broken=_is_broken(node),
            conditions=bad_conditions(node),
            rdma=_has_rdma(node),
            zone=_word(node.metadata.label(_ZONE)),
            rack=_word(node.metadata.label(_RACK)),
            nvlink_domain=_word(node.metadata.label(_CLIQUE)),
            order=_word(node.metadata.label(ORDER)),
            supply=_word(node.metadata.label(SUPPLY)),
        )
    except _CannotShow as why:
        return NotShown(str(why))


def why_unready(node: Node) -> tuple[str, ...]:
    conditions = {condition.type: condition for condition in node.status.conditions}
    ready = conditions.get("Ready")
    why = [] if ready and ready.status == "True" else [_condition(ready) if ready else "the cluster tells no condition Ready"]
    why += [_condition(each) for name in PRESSURES if (each := conditions.get(name)) and each.status == "True"]
    why += ["cordoned"] if node.spec.unschedulable else []
    return (*why, "being deleted") if node.metadata.deletionTimestamp else tuple(why)


def _condition(condition: Condition) -> str:
    return _CONTROL.sub("", f"{condition.type} is {condition.status}" + (f" ({condition.reason})" if condition.reason else ""))


class _CannotShow(Exception):
    pass


def _gpus(node: Node) -> tuple[tuple[GpuView, ...], str]:
    # The driver's UUIDs are known once checks have read all of them. The kubelet tells how many GPUs work, not which ones:
    # those with the highest indexes are reported unhealthy, and the node keeps all of them.
    model, memory_gib = _model(node), _memory_gib(node)
    uuids = _uuids(node, _count(node))
    capacity = min(_amount(node.status.capacity, GPU), _amount(node.status.allocatable, GPU))
    read = uuids_by_index(stored_uuids(node), len(uuids)) or [""] * len(uuids)
    gpus = tuple(
        GpuView(
            uuid=uuid,
            index=index,
            model=model,
            memory_gib=memory_gib,
            healthy=index < capacity,
            hardware_uuid=_word(hardware_uuid),
        )
        for index, (uuid, hardware_uuid) in enumerate(zip(uuids, read, strict=True))
    )
    memory = f"-{memory_gib}GB"
    return gpus, model[: _WORD_MAX - len(memory)] + memory


def _model(node: Node) -> str:
    """Returns H100 for NVIDIA-H100-80GB-HBM3. Raises _CannotShow."""
    product = _CONTROL.sub("", node.metadata.label(_PRODUCT))
    if not product:
        raise _CannotShow(f"it has no label {_PRODUCT}: is GPU Feature Discovery at work there?")
    if _is_shared(node, product):
        raise _CannotShow(f"its GPUs are shared or cut into parts ({product[:_WORD_MAX]}), and only whole ones are booked")
    # PCIe and NVL stay in the name: where a model has several form factors, those are slower.
    words = [word for word in product.split("-") if word and word.upper() not in _BRANDS and not _REST.fullmatch(word)]
    return _word("-".join("PCIe" if word.upper() == "PCIE" else word for word in words) or product)


def _is_shared(node: Node, product: str) -> bool:
    is_cut = any(key.startswith(_MIG_PREFIX) and _amount(node.status.capacity, key) for key in node.status.capacity)
    replicas = node.metadata.label(_REPLICAS) or "1"
    sharing = node.metadata.label(_SHARING) or "none"
    return is_cut or _PARTS.search(product) is not None or replicas not in ("0", "1") or sharing != "none"


def _memory_gib(node: Node) -> int:
    """Returns the marketed size. Raises _CannotShow."""
    memory_mib = _number(node.metadata.label(_MEMORY))
    memory_gib = math.ceil(memory_mib / 1024)
    if not 1 <= memory_gib <= 1_000_000:
        raise _CannotShow(f"its label {_MEMORY} says no MiB of memory: {_word(node.metadata.label(_MEMORY)) or 'it has none'}")
    return _SOLD_AS_GIB.get(memory_gib, memory_gib)


def _count(node: Node) -> int:
    """Counts installed GPUs. Raises _CannotShow."""
    # The device plugin may offer fewer GPUs than are installed.
    count = max(_number(node.metadata.label(_COUNT)), _amount(node.status.capacity, GPU))
    if not 1 <= count <= MOST_GPUS:
        raise _CannotShow(
            f"it has {count if count < 10**6 else 'too many'} GPUs by {_COUNT} and its capacity, where 1 to {MOST_GPUS} can be"
        )
    return count


def _uuids(node: Node, count: int) -> list[str]:
    # Names come from the annotation egs.io/gpu-uuids if it names all GPUs, otherwise from the node's UID and an index.
    # Reservations refer to these names, so they must stay the same while GPUs fail and return. An annotation with more
    # names than GPUs counted is accepted: the others have failed.
    named = [_CONTROL.sub("", uuid).strip() for uuid in node.metadata.annotation(GPU_UUIDS).split(",")]
    if count <= len(named) <= MOST_GPUS and len(set(named)) == len(named) and all(1 <= len(uuid) <= _WORD_MAX for uuid in named):
        return named
    return [f"{_uid(node)}-{index}" for index in range(count)]


def _name(node: Node) -> str:
    return _checked(node.metadata.name, NodeName, "name")


def _uid(node: Node) -> str:
    uid = node.metadata.uid
    _checked(uid and f"{uid}-{MOST_GPUS}", Id, "UID")  # room for a GPU index appended to it
    return uid


def _checked(text: str, type_: Any, what: str) -> str:
    try:
        return str(convert(text, type_))
    except msgspec.ValidationError as error:
        raise _CannotShow(f"its {what} is none: {error}") from error


def _is_broken(node: Node) -> bool:
    return all(condition.status != "True" for condition in node.status.conditions if condition.type == "Ready")


def _has_rdma(node: Node) -> bool:
    # Either node feature discovery or an offered device shows it; shared devices have amounts such as "1k".
    return node.metadata.label(_RDMA) == "true" or any(is_rdma(key) and amount != "0" for key, amount in node.status.capacity.items())


def is_rdma(resource: str) -> bool:
    domain, _, name = resource.partition("/")
    return domain == "rdma" or (domain == "nvidia.com" and "rdma" in name)


def _amount(resources: dict[str, str], key: str) -> int:
    return _number(resources.get(key, ""))


def _number(text: str) -> int:
    # 0 for anything that is not a plausible number.
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else 0


def _word(text: str) -> str:
    return _CONTROL.sub("", text)[:_WORD_MAX]

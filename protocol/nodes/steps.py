"""Names of the steps of entry and exit, and the stages of a drain."""

from __future__ import annotations

from enum import StrEnum

from protocol.assignments import Drain


class EntryStep(StrEnum):
    NODE_READY = "node_ready"
    GPU_COUNT = "gpu_count"
    GPU_HEALTH = "gpu_health"
    STORAGE = "storage"
    NETWORK = "network"
    RDMA = "rdma"
    NCCL = "nccl"
    GANG_NETWORK = "gang_network"


class ExitStep(StrEnum):
    DRAIN = "drain"
    GPU_IDLE = "gpu_idle"
    EXIT_NETWORK = "exit_network"
    EXIT_NCCL = "exit_nccl"
    VOLUMES = "volumes"
    NODE_CLEAN = "node_clean"


class RepairStep(StrEnum):
    """Names a repair of a node that is set aside, before entry checks prove its health."""

    RESTART_DRIVER = "restart_driver"
    RESET_GPUS = "reset_gpus"
    REBOOT_NODE = "reboot_node"


# These test the node's health, and not that nothing of the slice is left. So they do not block the exit when they have failed as often as
# an entry check may; the hub then sets the node aside.
EXIT_CHECKS = frozenset({ExitStep.EXIT_NETWORK, ExitStep.EXIT_NCCL})


# All nodes of a box run these together: none begins before all nodes have reached the step.
GANG_STEPS = frozenset({EntryStep.GANG_NETWORK})

# Steps that an administrator may skip for a cluster or a shape.
OPTIONAL: tuple[str, ...] = (
    EntryStep.GPU_HEALTH,
    EntryStep.STORAGE,
    EntryStep.NETWORK,
    EntryStep.RDMA,
    EntryStep.NCCL,
    EntryStep.GANG_NETWORK,
    ExitStep.EXIT_NETWORK,
    ExitStep.EXIT_NCCL,
    ExitStep.VOLUMES,
)


class Milestone(StrEnum):
    """The agent reports these for every assignment."""

    ISOLATE = "claim"  # the word of older agents
    OPEN = "open"
    CLOSE = "close"
    RELEASE = "release"


_NAMES: dict[str, str] = {
    Milestone.ISOLATE: "Fence and label",
    EntryStep.NODE_READY: "Node ready",
    EntryStep.GPU_COUNT: "GPU count",
    EntryStep.GPU_HEALTH: "GPU health",
    EntryStep.STORAGE: "Storage",
    EntryStep.NETWORK: "Network",
    EntryStep.RDMA: "RDMA links",
    EntryStep.NCCL: "NCCL",
    EntryStep.GANG_NETWORK: "Network of the box",
    Milestone.OPEN: "Open to workspace",
    Milestone.CLOSE: "Close to workspace",
    ExitStep.DRAIN: "Drain",
    ExitStep.GPU_IDLE: "GPUs idle",
    ExitStep.EXIT_NETWORK: "Network",
    ExitStep.EXIT_NCCL: "NCCL",
    ExitStep.VOLUMES: "Volumes",
    ExitStep.NODE_CLEAN: "Clean the node",
    RepairStep.RESTART_DRIVER: "Restart the GPU driver's pods",
    RepairStep.RESET_GPUS: "Reset the GPUs",
    RepairStep.REBOOT_NODE: "Reboot the node",
    Milestone.RELEASE: "Take label off, release",
}


class DrainStage(StrEnum):
    EVICT = "evict"  # evict: disruption budgets may refuse
    DELETE = "delete"  # delete with the rest of the pod's grace period
    FORCE = "force"  # delete without waiting for the node


CAPABILITIES: tuple[str, ...] = (*EntryStep, *ExitStep, *RepairStep)


def step_name(step: str) -> str:
    """Returns the name that people read."""
    return _NAMES.get(step, step.replace("_", " ").capitalize())


def drain_stage(drain: Drain, since_closed_s: float) -> DrainStage:
    """A pod disruption budget delays an exit by the grace at most."""
    if since_closed_s >= drain.force_after_s:
        return DrainStage.FORCE
    return DrainStage.DELETE if since_closed_s >= drain.grace_s else DrainStage.EVICT

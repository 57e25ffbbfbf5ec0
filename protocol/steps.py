"""The steps of entry and exit, and the stages of a drain.

Lives here: names that the hub may ask for. Must not live here: what a step does (the cluster driver's) or when (entry,
leave).
"""

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


# These tell how the node is, not whether something of the slice is left: failed so often as an entry check may, they do not hold up the
# exit, and the hub sets the node aside.
EXIT_CHECKS = frozenset({ExitStep.EXIT_NETWORK, ExitStep.EXIT_NCCL})


# Nodes of a box take these together: none begins before all of them have come so far.
GANG_STEPS = frozenset({EntryStep.GANG_NETWORK})

# What an administrator may leave out for a cluster or a shape.
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
    """Not for the hub to choose: every assignment passes through them. Reported like steps."""

    CLAIM = "claim"
    OPEN = "open"
    CLOSE = "close"
    RELEASE = "release"


class DrainStage(StrEnum):
    EVICT = "evict"  # ask: disruption budgets may refuse
    DELETE = "delete"  # tell: with what is left of the pod's grace
    FORCE = "force"  # do not wait for the node


CAPABILITIES: tuple[str, ...] = (*EntryStep, *ExitStep)


def drain_stage(drain: Drain, since_closed_s: float) -> DrainStage:
    """A tenant's disruption budget delays an exit by the grace, never for ever."""
    if since_closed_s >= drain.force_after_s:
        return DrainStage.FORCE
    return DrainStage.DELETE if since_closed_s >= drain.grace_s else DrainStage.EVICT

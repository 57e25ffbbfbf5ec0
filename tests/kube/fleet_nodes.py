"""Nodes of a fleet file as a Kubernetes cluster has them: GPU capacity, labels of GPU Feature Discovery, zone and rack.

`python -m tests.kube.fleet_nodes FLEET.yaml | kubectl apply -f -` puts them into a cluster of deploy/kube, where kwok makes them ready.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from protocol.nodes.inventory import NodeView
from worker_agent.cluster.fleet import SimulatedFleet, read_fleet

# As GPU Feature Discovery reads them from the driver: the product's name, and MiB of memory.
GPUS: Final = {
    "H200-141GB": ("NVIDIA-H200", 143771),
    "H100-80GB": ("NVIDIA-H100-80GB-HBM3", 81559),
    "A100-80GB": ("NVIDIA-A100-SXM4-80GB", 81920),
    "L40S-48GB": ("NVIDIA-L40S", 46068),
    "A10-24GB": ("NVIDIA-A10", 23028),
}


def nodes_of(fleet: SimulatedFleet) -> list[dict[str, Any]]:
    """Returns Node objects. Raises KeyError for a shape that GPUS does not have."""
    return [_node(view) for view in fleet.nodes()]


def _node(view: NodeView) -> dict[str, Any]:
    capacity = {"cpu": "128", "memory": "2Ti", "ephemeral-storage": "8Ti", "pods": "110", "nvidia.com/gpu": str(len(view.gpus))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": view.name, "labels": _labels(view), "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def _labels(view: NodeView) -> dict[str, str]:
    product, memory_mib = GPUS[view.shape]
    labels = {
        "kubernetes.io/hostname": view.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": view.node_type,
        "topology.kubernetes.io/zone": view.zone,
        "topology.kubernetes.io/rack": view.rack,
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(len(view.gpus)),
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.clique": view.nvlink_domain,
        "feature.node.kubernetes.io/rdma.available": "true" if view.rdma else "",
    }
    return {key: value for key, value in labels.items() if value}


if __name__ == "__main__":
    json.dump({"apiVersion": "v1", "kind": "List", "items": nodes_of(read_fleet(Path(sys.argv[1])))}, sys.stdout)

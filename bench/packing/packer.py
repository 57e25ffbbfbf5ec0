"""The packer places one request after the other, each for good until it is given back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.packing import kernels
from bench.packing.kernels import Floats, Ints
from bench.packing.model import WHOLE_GPU, Kind, PackNode, PackRequest, Placement, Policy, model_bits, model_mask
from bench.packing.worths import CPU_PRICES, Worths, kind_rows, scarcity_of, worths_of

CODES = {
    Policy.RANDOM: kernels.RANDOM,
    Policy.BEST_FIT: kernels.BEST_FIT,
    Policy.FGD: kernels.FGD,
    Policy.EGS: kernels.EGS,
}


class Packer:
    """Holds the free part of some nodes, and a policy to fill them by. The same calls give the same placements.

    `demand`: what is expected, for FGD and EGS; `worths` spares EGS computing them again for the same nodes and demand. Nodes that
    cost the same are taken in the order of `nodes`. A request is placed whenever any node can take it: no policy turns one away.
    Costs are kept per kind of request and made anew only for nodes that changed: O(nodes) a placement, and memory O(kinds × nodes).
    """

    def __init__(self, nodes: Sequence[PackNode], *, policy: Policy, demand: Sequence[Kind] = (), worths: Worths | None = None) -> None:
        self._nodes = tuple(nodes)
        self._place_of = {node.id: place for place, node in enumerate(self._nodes)}
        if len(self._place_of) < len(self._nodes):
            raise ValueError("two nodes with one id")
        self._policy = policy
        self._bits = model_bits(nodes)
        self._cpu_left = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self._memory_left = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self._gpus_left = np.zeros((len(self._nodes), max((node.gpu_count for node in nodes), default=0)), dtype=np.int64)
        for place, node in enumerate(self._nodes):
            self._gpus_left[place, : node.gpu_count] = WHOLE_GPU
        self._models = np.array([self._bits[node.model] for node in nodes], dtype=np.int64)
        self._versions = np.zeros(len(self._nodes), dtype=np.int64)
        self.expect(demand, worths=worths)

    def expect(self, demand: Sequence[Kind], *, worths: Worths | None = None) -> None:
        """From now on place for this demand."""
        self._kinds, self._shares = kind_rows(demand, self._bits)
        self._weighed, self._weights = self._kinds, self._shares
        if self._policy is Policy.EGS:
            worths = worths or worths_of(self._nodes, demand)
            self._weighed, self._weights = scarcity_of(self._nodes, self._kinds, self._shares, self._bits)
        self._worths: Floats = worths.table if worths else np.zeros((1, 1, 1))
        class_of = worths.class_of if worths else {}
        self._classes = np.array([class_of.get(node.model, 0) for node in self._nodes], dtype=np.int64)
        self._costs: dict[PackRequest, tuple[Ints, Floats, Ints, Ints]] = {}

    @property
    def free_gpu_milli(self) -> int:
        return int(self._gpus_left.sum())

    def place(self, request: PackRequest, *, draw: int = 0) -> Placement | None:
        """Take room for the request; None when no node has any. `draw` is the caller's random number, which Random alone reads."""
        row, costs, gpus, seen = self._costs_of(request)
        node = kernels.refresh(
            CODES[self._policy],
            row,
            self._cpu_left,
            self._memory_left,
            self._gpus_left,
            self._models,
            self._versions,
            self._weighed,
            self._weights,
            self._worths,
            self._classes,
            CPU_PRICES,
            costs,
            gpus,
            seen,
        )
        if node < 0:
            return None
        gpu = int(gpus[node])
        if self._policy is Policy.RANDOM:
            node, gpu = self._drawn(request, costs, draw)
        before = self._gpus_left[node].copy()
        kernels.take(row, self._gpus_left[node], gpu)
        taken = tuple(int(place) for place in np.flatnonzero(before != self._gpus_left[node]))
        self._cpu_left[node] -= request.cpu_milli
        self._memory_left[node] -= request.memory_mib
        self._versions[node] += 1
        return Placement(request, self._nodes[node].id, taken)

    def give_back(self, placement: Placement) -> None:
        """Free what a placement took. To call it twice for one placement is the caller's error."""
        node = self._place_of[placement.node_id]
        self._cpu_left[node] += placement.request.cpu_milli
        self._memory_left[node] += placement.request.memory_mib
        self._gpus_left[node, list(placement.gpus)] += placement.request.gpu_milli
        self._versions[node] += 1

    def fragmentation(self) -> float:
        """How many GPUs are free that the average expected request cannot use."""
        lost = (
            kernels.fragmentation(int(cpu), gpus, int(model), self._kinds, self._shares)
            for cpu, gpus, model in zip(self._cpu_left, self._gpus_left, self._models, strict=True)
        )
        return float(sum(lost)) / WHOLE_GPU

    def _costs_of(self, request: PackRequest) -> tuple[Ints, Floats, Ints, Ints]:
        if request not in self._costs:
            count = len(self._nodes)
            row = np.array(
                (request.cpu_milli, request.memory_mib, request.gpu_count, request.gpu_milli, model_mask(request, self._bits)),
                dtype=np.int64,
            )
            seen = np.full(count, -1, dtype=np.int64)
            self._costs[request] = (row, np.zeros(count), np.zeros(count, dtype=np.int64), seen)
        return self._costs[request]

    def _drawn(self, request: PackRequest, costs: Floats, draw: int) -> tuple[int, int]:
        nodes = np.flatnonzero(costs < kernels.NO_FIT)
        node = int(nodes[draw % len(nodes)])
        if request.gpu_count != 1 or request.gpu_milli == WHOLE_GPU:
            return node, -1
        gpus = np.flatnonzero(self._gpus_left[node] >= request.gpu_milli)
        return node, int(gpus[draw // len(nodes) % len(gpus)])

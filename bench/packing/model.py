"""Defines the packer's input and output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

WHOLE_GPU = 1000


class Policy(StrEnum):
    """Ours is EGS; the others are peers to compare it with."""

    RANDOM = "random"
    BEST_FIT = "best-fit"
    FGD = "fgd"
    EGS = "egs"


@dataclass(frozen=True, slots=True)
class PackNode:
    id: str
    cpu_milli: int
    memory_mib: int
    gpu_count: int
    model: str


@dataclass(frozen=True, slots=True, order=True)
class PackRequest:
    """Asks for a part of one node. `gpu_milli` is the share of each GPU: below 1000 only with one GPU. No `models`: any model will do."""

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.gpu_count, self.gpu_milli) < 0:
            raise ValueError("a request cannot be negative")
        if bool(self.gpu_count) != bool(self.gpu_milli) or self.gpu_milli > WHOLE_GPU:
            raise ValueError(f"{self.gpu_count} GPUs of {self.gpu_milli}/1000 each")
        if self.gpu_count > 1 and self.gpu_milli != WHOLE_GPU:
            raise ValueError("several GPUs are whole ones")

    @property
    def gpu_milli_sum(self) -> int:
        return self.gpu_count * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Placement:
    """`gpus` are places on the node, from 0; none when the request has no GPU."""

    request: PackRequest
    node_id: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that are alike but for their memory, and their share of all requests, 0 to 1."""

    request: PackRequest
    share: float


def demand_of(requests: Iterable[PackRequest], *, cover: float = 1.0) -> tuple[Kind, ...]:
    """Returns the kinds among `requests`, most frequent first, until they cover that part of them; shares sum to 1.

    Source: the typical pods of Weng et al. (ATC'23), who leave memory out and cover 0.95.
    """
    counts = Counter(
        PackRequest(request.cpu_milli, 0, request.gpu_count, request.gpu_milli, request.models) for request in requests
    ).most_common()
    # Equal counts: the larger request first, so that the order of `requests` does not matter.
    counts.sort(key=lambda row: (row[1], row[0].cpu_milli, row[0].gpu_milli, row[0].gpu_count, row[0].models), reverse=True)
    goal, covered, kept = cover * sum(count for _, count in counts), 0, 0
    while kept < len(counts) and covered < goal:
        covered += counts[kept][1]
        kept += 1
    return tuple(Kind(request, count / covered) for request, count in counts[:kept])


def model_bits(nodes: Sequence[PackNode]) -> dict[str, int]:
    """Gives each GPU model of these nodes a bit."""
    models = sorted({node.model for node in nodes})
    if len(models) > 62:
        raise ValueError(f"{len(models)} GPU models; 62 at most")
    return {model: 1 << place for place, model in enumerate(models)}


def model_mask(request: PackRequest, bits: dict[str, int]) -> int:
    """The models that the request may use, as bits; all of them when it names none, 0 when the nodes have none that it names."""
    if not request.models:
        return -1
    return sum(bits.get(model, 0) for model in set(request.models))

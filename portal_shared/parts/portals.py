"""What differs between the portals where a page is in both: names of addresses, and the folder of templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Portal:
    name: str
    table: str  # of GPUs
    gpu: str
    gpr: str
    map: str
    compare: str
    workloads: str
    workload: str
    pods: str


USER: Final = Portal(
    "user",
    table="gpus",
    gpu="gpu",
    gpr="gpr",
    map="gpu-map",
    compare="gpu-compare",
    workloads="workloads",
    workload="workload",
    pods="pods",
)
ADMIN: Final = Portal(
    "admin",
    table="admin-gpus",
    gpu="admin-gpu",
    gpr="admin-inspect",
    map="admin-gpu-map",
    compare="admin-gpu-compare",
    workloads="admin-workloads",
    workload="admin-workload",
    pods="admin-pods",
)

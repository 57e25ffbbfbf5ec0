"""These texts stand for what the checks' tools print on a healthy H100 node. Nobody has seen them on hardware."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from protocol.nodes.steps import EntryStep, ExitStep
from worker_agent.kube.checks.gang_verdicts import ring
from worker_agent.kube.checks.steps import GANG_FAN_OUT
from worker_agent.kube.checks.verdicts import NAME


def gpu_lines(gpus: Sequence[str], *, ecc_uncorrected: int = 0, used_mib: int = 4) -> str:
    """`ecc_uncorrected` and `used_mib` are those of the last GPU."""
    last = len(gpus) - 1
    return "".join(
        _gpu_line(gpu, n, errors=ecc_uncorrected, used_mib=used_mib) if n == last else _gpu_line(gpu, n) for n, gpu in enumerate(gpus)
    )


def _gpu_line(gpu: str, number: int, *, errors: int = 0, used_mib: int = 4) -> str:
    return f"{gpu}, 00000000:{16 + number:02X}:00.0, 31, {used_mib}, {errors}, 0, 0, 12, 0x0000000000000001\n"


def row_lines(gpus: Sequence[str]) -> str:
    return "".join(f"{gpu}, 0, 0, 0\n" for gpu in gpus)


def nccl_report(bus_bw: float = 472.0) -> dict[str, Any]:
    def size(of_bytes: int, time_us: float, bandwidth: float) -> dict[str, Any]:
        way = {"time": time_us, "alg_bw": bandwidth / 1.75, "bus_bw": bandwidth, "nwrong": 0.0}
        return {"size": of_bytes, "count": of_bytes // 4, "type": "float", "redop": "sum", "out_of_place": way, "in_place": way}

    return {"version": 2, "results": [size(16, 21.0, 0.0), size(16 << 30, 62_000.0, bus_bw)]}


def rdma_files() -> dict[str, str]:
    return {f"/sys/class/infiniband/mlx5_{n}/ports/1/{name}": text for n in range(8) for name, text in RDMA_PORT.items()}


def gang_words(index: int, count: int) -> str:
    """Returns the words of the pod of this index, where all nodes of the box are well."""
    peers = {peer: {"ms": 0.2} for peer in ring(index, count, GANG_FAN_OUT)}
    return json.dumps({"gang": {"index": index, "peers": peers}, "files": rdma_files()})


def last_words(step: str, gpus: Sequence[str]) -> str:
    count = {"gpus": {"text": gpu_lines(gpus)}}
    rdma = rdma_files()
    documents: dict[str, dict[str, Any]] = {
        EntryStep.GPU_COUNT: {"commands": count},
        EntryStep.GPU_HEALTH: {"commands": count | {"rows": {"text": row_lines(gpus)}}, "xids": {"text": "", "uptime_s": 86_400.0}},
        EntryStep.STORAGE: {"volume": {"bytes": 64_000_000, "write_s": 0.08, "read_s": 0.04, "is_same": True}},
        EntryStep.NETWORK: {"names": {NAME: {"ms": 1.5}}, "addresses": {f"{NAME}:443": {"ms": 0.5}, "10.1.2.3:53": {"ms": 0.4}}},
        EntryStep.RDMA: {"files": rdma},
        EntryStep.NCCL: nccl_report(),
        ExitStep.GPU_IDLE: {"commands": count | {"processes": {"text": ""}}},
    }
    documents |= {ExitStep.EXIT_NETWORK: documents[EntryStep.NETWORK], ExitStep.EXIT_NCCL: documents[EntryStep.NCCL]}
    return json.dumps(documents[step])


RDMA_PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "gids/0": "fe80:0000:0000:0000:a088:c203:0012:3456",
}

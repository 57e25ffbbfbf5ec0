"""Sets the limits of the checks of nodes.

Sources: Azure's node health checks (bandwidths of one node, ECC, remapped rows, links), NVIDIA's catalog of Xids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from protocol.nodes.checks import CheckPolicy, CheckResult, Verdict

TEXT_MAX_CHARS = 200
_CARDS: Final = frozenset({"PCIE", "NVL"})


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    says: str
    unit: str = ""
    value: float | None = None  # the highest good value, or the lowest with `is_least`; None: only measured
    # For boards with NVLink between all GPUs (SXM). PCIe and NVL variants are slower: they have `value`, as all other models do.
    by_gpu: dict[str, float] = {}
    is_least: bool = False
    is_warning: bool = False
    highest: float = 1_000_000  # the highest value that a policy may set


LIMITS: Final[dict[str, Limit]] = {
    "gpu_temperature": Limit(says="GPU temperature", unit="°C", value=87, highest=150),
    "ecc_uncorrected": Limit(says="ECC errors not corrected since the last reset", value=0),
    "ecc_sram_uncorrected": Limit(says="ECC errors of SRAM not corrected, ever", value=0),
    "ecc_sram_corrected": Limit(says="ECC errors of SRAM corrected, ever", value=10_000),
    "ecc_dram_corrected": Limit(says="ECC errors of DRAM corrected, ever", value=20_000_000, highest=10**12),
    "rows_uncorrectable": Limit(says="Rows remapped for errors not corrected", value=512),
    "rows_pending": Limit(says="Row remaps that wait for a reset", value=0, highest=10_000),
    "rows_failed": Limit(says="Row remaps that failed", value=0, highest=10_000),
    "xid_errors": Limit(says="Xid errors that ask for a reset or a repair", value=0, highest=10_000),
    "throttle_reasons": Limit(says="Reasons for slowed clocks", value=0, is_warning=True, highest=8),
    "volume_wait": Limit(says="Time until a volume was there", unit="s", value=120, highest=3600),
    "volume_write": Limit(says="Write to a volume", unit="MB/s", value=10, is_least=True),
    "volume_read": Limit(says="Read from a volume", unit="MB/s", value=10, is_least=True),
    "dns_time": Limit(says="Name looked up", unit="ms", value=2000, highest=60_000),
    "service_time": Limit(says="API server reached", unit="ms", value=1000, highest=60_000),
    "peer_time": Limit(says="Pod of another node reached", unit="ms", value=1000, highest=60_000),
    "gang_latency": Limit(says="Pod on another node of the box, there and back", unit="ms", value=100, highest=60_000),
    "rdma_links": Limit(says="RDMA links that are up", value=1, is_least=True, highest=64),
    "rdma_rate": Limit(
        says="Rate of the slowest RDMA link", unit="Gb/s", value=100, by_gpu={"H100": 400, "H200": 400, "A100": 200}, is_least=True
    ),
    "nccl_bandwidth": Limit(
        says="NCCL all-reduce, bus bandwidth", unit="GB/s", by_gpu={"H100": 460, "H200": 431, "A100": 228}, is_least=True
    ),
    "nccl_latency": Limit(says="NCCL all-reduce of 16 bytes", unit="µs", value=100),
    "nccl_wrong": Limit(says="NCCL all-reduce, wrong values", value=0),
    "gpu_memory_used": Limit(says="GPU memory in use", unit="MiB", value=256),
    "gpu_processes": Limit(says="Processes on the GPU", value=0, highest=1_000),
}
# Each of these is compared with a value that the caller expects; no policy sets them.
MEASURED: Final[dict[str, str]] = {
    "node_ready": "Node ready",
    "gpu_count": "GPUs that answer",
    "gpu_faults": "Questions that the GPU answered with an error",
    "rows_told": "Remapped rows told",
    "volume_content": "Content of a volume as written",
    "rdma_subnet": "RDMA ports of another subnet than the policy's",
    "gang_peers": "Nodes of the box at work that it reached and that reached it",
    "gang_rdma_links": "RDMA ports down here and up on other nodes of the box",
    "gang_rdma_subnet": "RDMA ports of another subnet than on most nodes of the box",
    "volumes_attached": "Volumes of the workspace on the node",
    "volumes_lost": "Volume claims of the workspace that lost their volume",
    "pods_left": "Pods of the box on the node",
    "marks_left": "Labels and taints of the box on the node",
}
# Purposes of images. Without a policy the agent uses its own image for `probe`, and NCCL is not measured.
IMAGES: Final[dict[str, str]] = {
    "probe": "Python 3; the agent's own image without it",
    "nccl": "sh and all_reduce_perf of nccl-tests; without it NCCL is not measured",
}


def says(check: str) -> str:
    limit = LIMITS.get(check)
    return limit.says if limit else MEASURED.get(check, check.replace("_", " ").capitalize())


def threshold_of(check: str, shape: str, policy: CheckPolicy) -> float | None:
    """Return None if the check only measures. `shape` is the node's, as in `H100-80GB`."""
    limit = LIMITS[check]
    model, *rest = shape.split("-")
    is_board = not any(word.upper() in _CARDS for word in rest)
    return policy.limits.get(check, limit.by_gpu.get(model, limit.value) if is_board else limit.value)


def judge(check: str, value: float | None, *, shape: str, policy: CheckPolicy, gpu: str = "", text: str = "") -> CheckResult:
    """Returns SKIP for None and for values that are not finite."""
    limit = LIMITS[check]
    bad = Verdict.WARN if limit.is_warning else Verdict.FAIL
    threshold = threshold_of(check, shape, policy)
    return _result(check, value, threshold, gpu=gpu, text=text, unit=limit.unit, is_least=limit.is_least, bad=bad)


def expect(check: str, value: float | None, expected: float, *, is_least: bool = False, gpu: str = "", text: str = "") -> CheckResult:
    return _result(check, value, expected, gpu=gpu, text=text, is_least=is_least)


def measured_against(met: Sequence[str], unmet: Sequence[str] = (), silent: Sequence[str] = ()) -> CheckResult:
    """Report which working nodes of the box a spare reached. Unreached nodes give a warning."""
    said = [f"{', '.join(met)}; their GPUs are at work and were left out"] if met else []
    said += [f"not {', '.join(unmet)}: not reached both ways"] if unmet else []
    said += [f"not {', '.join(silent)}: its pod said nothing"] if silent else []
    found = expect("gang_peers", len(met), len(met) + len(unmet) + len(silent), is_least=True, text="; ".join(said))
    if not unmet and not silent:
        return found
    return msgspec.structs.replace(found, verdict=Verdict.WARN if met or unmet else Verdict.SKIP)


def skipped(check: str, why: str) -> CheckResult:
    return CheckResult(check=check, verdict=Verdict.SKIP, text=why[:TEXT_MAX_CHARS])


def is_good(results: tuple[CheckResult, ...]) -> bool:
    return all(result.verdict is not Verdict.FAIL for result in results)


def amount(value: float) -> str:
    """Writes `20,000,000` or `548.21`."""
    return f"{value:,.10g}"


def sentence(result: CheckResult) -> str:
    """Writes `NCCL all-reduce, bus bandwidth: 470 GB/s (at least 460)`."""
    unit = f" {result.unit}" if result.unit else ""
    value = "" if result.value is None else f" {amount(result.value)}{unit}"
    bound = "" if result.threshold is None else f" (at {'least' if result.is_least else 'most'} {amount(result.threshold)})"
    return f"{says(result.check)}:{value}{bound}{' ' if result.text else ''}{result.text}"


def _result(
    check: str,
    value: float | None,
    threshold: float | None,
    *,
    gpu: str,
    text: str,
    unit: str = "",
    is_least: bool = False,
    bad: Verdict = Verdict.FAIL,
) -> CheckResult:
    known = value if value is not None and math.isfinite(value) else None
    verdict = Verdict.PASS
    if known is None:
        verdict, text = Verdict.SKIP, text or "not measured"
    elif threshold is not None and (known < threshold if is_least else known > threshold):
        verdict = bad
    return CheckResult(
        check=check,
        verdict=verdict,
        gpu=gpu[:63],
        value=known,
        unit=unit,
        threshold=threshold,
        is_least=is_least,
        text=text[:TEXT_MAX_CHARS],
    )

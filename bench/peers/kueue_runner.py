"""Runs Kueue itself: its own performance runner, on an etcd and a kube-apiserver of its own.

`KUEUE_SRC` names its checkout: the CRDs are read there, and `runner` and `minimalkueue` are built from it, unless `KUEUE_BIN` names a
folder with them. `etcd` and `kube-apiserver` are those of deploy/kube, unless `KUBEBUILDER_ASSETS` names a folder with others. The runner
starts all of them, on the loopback address, and stops them at the end.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.figures import NotRun
from bench.peers.checkout import built, folder_of, said
from bench.peers.kueue_scenarios import Scenario

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = {name: f"test/performance/scheduler/{name}" for name in ("runner", "minimalkueue")}
SERVERS: Final = ("etcd", "kube-apiserver")
CRDS: Final = Path("config/components/crd/bases")
# Kueue's own Makefile and CI run it so.
QPS, BURST = 1000, 2000
WITHIN_S: Final = 45 * 60


@dataclass(frozen=True, slots=True)
class Ran:
    """The runner measured these. `wall_s`, `cpu_s`, `memory_mb`: of Kueue's process, without API server and database. `usage`: of the
    quota, over that time. `waits_s`: mean time to admission by class, for one that was evicted until its last; `evictions`: in all.
    `dropped_count`: events that the runner itself was too slow to count.
    """

    wall_s: float
    cpu_s: float
    memory_mb: float
    usage: float
    waits_s: Mapping[str, float]
    evictions: int
    dropped_count: int


def run(scenario: Scenario) -> Ran:
    """Raises NotRun, with what is missing or what the runner said last."""
    source = folder_of("KUEUE_SRC", (str(CRDS),))
    servers = folder_of("KUBEBUILDER_ASSETS", SERVERS) if os.environ.get("KUBEBUILDER_ASSETS") else _servers_built()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        programs = folder_of("KUEUE_BIN", PROGRAMS) if os.environ.get("KUEUE_BIN") else built("Kueue", source, PROGRAMS, out)
        (out / "generator.yaml").write_text(json.dumps(scenario.generator()))  # JSON is YAML, too
        command = [
            *(str(programs / "runner"), "-o", str(out), "-crds", str(source / CRDS)),
            *("-generatorConfig", str(out / "generator.yaml"), "-minimalKueue", str(programs / "minimalkueue")),
            *("-timeout", f"{WITHIN_S}s", "-qps", str(QPS), "-burst", str(BURST)),
        ]
        said("Kueue's runner", command, KUBEBUILDER_ASSETS=str(servers))
        return read(out)


def read(out: Path) -> Ran:
    """Reads what the runner left in its folder of results. Raises NotRun where the form is not that of when this was written."""
    try:
        summary, stats = (yaml.safe_load((out / name).read_text()) for name in ("summary.yaml", "minimalkueue.stats.yaml"))
        queues, classes = list(summary["clusterQueueClasses"].values()), summary["workloadClasses"]
        return Ran(
            wall_s=stats["wallMs"] / 1000,
            cpu_s=(stats["userMs"] + stats["sysMs"]) / 1000,
            memory_mb=stats["maxrss"] / 1024,
            usage=_sum(queues, "cpuAverageUsage") / _sum(queues, "nominalQuota"),
            waits_s={name: each["averageTimeToAdmissionMs"] / 1000 for name, each in classes.items()},
            evictions=_sum(classes.values(), "totalEvictions"),
            dropped_count=summary["droppedWorkloadEvents"],
        )
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
        raise NotRun(f"the results of Kueue's runner could not be read: {error!r}") from error


def _sum(parts: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(int(part[key]) for part in parts)


def _servers_built() -> Path:
    return Path(said("deploy/kube", [str(ROOT / "deploy/kube"), "build"]).splitlines()[-1])

"""Kueue itself: its own performance runner, from programs that somebody has built, on an etcd and a kube-apiserver of its own.

`KUEUE_SRC` names its checkout (the CRDs are read there), `KUEUE_BIN` a folder with `runner` and `minimalkueue`, and `KUBEBUILDER_ASSETS`
one with `etcd` and `kube-apiserver`. The runner starts all of them, on the loopback address, and stops them at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.figures import NotRun
from bench.scenarios import Scenario

PROGRAMS: Final = {"KUEUE_BIN": ("runner", "minimalkueue"), "KUBEBUILDER_ASSETS": ("etcd", "kube-apiserver")}
CRDS: Final = Path("config/components/crd/bases")
# As Kueue's own Makefile and CI run it.
QPS, BURST = 1000, 2000
WITHIN_S: Final = 45 * 60


@dataclass(frozen=True, slots=True)
class Ran:
    """As the runner measured it. `wall_s`, `cpu_s`, `memory_mb`: of Kueue's process, without API server and database. `usage`: of the
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
    source = _folder("KUEUE_SRC", (str(CRDS),))
    folders = {name: _folder(name, programs) for name, programs in PROGRAMS.items()}
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        (out / "generator.yaml").write_text(json.dumps(scenario.generator()))  # JSON is YAML, too
        command = [
            *(str(folders["KUEUE_BIN"] / "runner"), "-o", str(out), "-crds", str(source / CRDS)),
            *("-generatorConfig", str(out / "generator.yaml"), "-minimalKueue", str(folders["KUEUE_BIN"] / "minimalkueue")),
            *("-timeout", f"{WITHIN_S}s", "-qps", str(QPS), "-burst", str(BURST)),
        ]
        with (out / "runner.log").open("w") as told:
            status = subprocess.run(command, stdout=told, stderr=told, check=False).returncode
        if status:
            raise NotRun(f"Kueue's runner failed: {(out / 'runner.log').read_text()[-400:].strip()}")
        return read(out)


def read(out: Path) -> Ran:
    """What the runner left in its folder of results. Raises NotRun where that is not what it was when this was written."""
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


def _folder(name: str, wanted: Iterable[str]) -> Path:
    given = os.environ.get(name)
    if not given:
        raise NotRun(f"{name} names no folder")
    folder = Path(given)
    missing = [each for each in wanted if not (folder / each).exists()]
    if missing:
        raise NotRun(f"{name}: there is no {', '.join(missing)} in {folder}")
    return folder

"""A real Slurm controller without an install: Debian's packages unpacked into a cache, nodes that exist in its configuration only.

No slurmd runs: CLOUD nodes that are never really powered up take jobs, which then count as running until their time limit. A node's
CPUs stand for GPUs.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import NotRun

PACKAGES: Final = ("slurmctld", "slurm-client", "slurm-wlm-basic-plugins")
READY_WITHIN_S: Final = 30
# Backfill looks at everybody, a month ahead, by the minute, and takes the time it needs: as good as it gets.
BACKFILL: Final = "bf_continue,bf_interval=5,bf_max_job_test=5000,bf_max_time=60,bf_window=43200,bf_resolution=60,default_queue_depth=5000"
CONF: Final = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
PluginDir={lib}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmctldPort={port}
SlurmdPort={slurmd_port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters={backfill},sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PriorityType=priority/basic
PreemptMode=OFF
MaxJobCount=100000
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=2000000
ResumeTimeout=3600
SlurmctldTimeout=120
SlurmdTimeout=0
TreeWidth=65533
PrivateData=cloud
NodeName=n[1-{nodes}] CPUs={gpus} RealMemory=500000 State=CLOUD
PartitionName=gpu Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A job as squeue shows it; times in seconds since the Unix epoch, None where it knows none."""

    id: str
    is_running: bool
    nodes: tuple[str, ...]
    start_s: int | None
    end_s: int | None


@dataclass(frozen=True, slots=True)
class Ask:
    """It asks for whole nodes (`gpus` 0) or so many GPUs of one."""

    nodes: int
    gpus: int
    minutes: int

    @property
    def options(self) -> list[str]:
        size = ["-n1", f"-c{self.gpus}"] if self.gpus else ["--exclusive"]
        return [f"-N{self.nodes}", *size, f"-t{self.minutes}", "-o/dev/null"]


@dataclass(frozen=True, slots=True)
class Slurm:
    root: Path
    environment: dict[str, str]

    def submit(self, ask: Ask) -> str:
        return self._run("sbatch", "--parsable", *ask.options, "--wrap=true").stdout.strip()

    def cancel(self, id_: str) -> None:
        self._run("scancel", id_)

    def estimate(self, ask: Ask) -> int:
        """Asks by `--test-only` when it would start."""
        told = self._run("sbatch", "--test-only", *ask.options, "--wrap=true").stderr
        found = re.search(r"to start at (\d+)", told)
        if found is None:
            raise NotRun(f"sbatch --test-only said {told.strip()!r}")
        return int(found[1])

    def queue(self) -> list[Listed]:
        lines = self._run("squeue", "--noheader", "--start", "-o%i|%T|%N|%S|%e", "-tPENDING").stdout.splitlines()
        lines += self._run("squeue", "--noheader", "-o%i|%T|%N|%S|%e", "-tRUNNING,CONFIGURING").stdout.splitlines()
        return [_listed(*line.split("|")) for line in lines]

    def backfill_cycle(self) -> tuple[int, float]:
        """(jobs tried, seconds) of the last one."""
        told = self._run("sdiag").stdout
        told = told[told.index("Backfilling stats") :]
        tried, spent_us = (re.search(rf"{name}: *(\d+)", told) for name in ("Last depth cycle", "Last cycle"))
        return (int(tried[1]), int(spent_us[1]) / 1e6) if tried and spent_us else (0, 0.0)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = self.root / "usr/bin" / program
        return subprocess.run([path, *arguments], env=self.environment, capture_output=True, text=True, check=True, timeout=60)


@contextmanager
def slurmctld(*, nodes: int, gpus: int) -> Iterator[Slurm]:
    """Runs a controller of its own with an empty queue until the end. Raises NotRun where it cannot be had."""
    root = _unpacked()
    lib = root / f"usr/lib/{platform.machine()}-linux-gnu/slurm-wlm"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        host, user = socket.gethostname().split(".")[0], getpass.getuser()
        conf = CONF.format(
            host=host, user=user, lib=lib, folder=folder, backfill=BACKFILL, nodes=nodes, gpus=gpus, port=_port(), slurmd_port=_port()
        )
        (folder / "slurm.conf").write_text(conf)
        settings = {"SLURM_CONF": str(folder / "slurm.conf"), "LD_LIBRARY_PATH": str(lib), "SLURM_TIME_FORMAT": "%s"}
        slurm = Slurm(root, os.environ | settings)
        daemon = subprocess.Popen(
            [root / "usr/sbin/slurmctld-wlm", "-D", "-f", folder / "slurm.conf"],
            env=slurm.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_ready(slurm, daemon, folder / "slurmctld.log")
            yield slurm
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)


def _unpacked() -> Path:
    """Later runs find the unpacked files."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "egs-bench" / "slurm"
    if (root / "usr/sbin/slurmctld-wlm").exists():
        return root
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotRun("no Slurm: it is taken from Debian's packages, and there is no apt-get")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as name:
        folder = Path(name)
        loaded = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True, check=False)
        if loaded.returncode != 0:
            raise NotRun(f"no Slurm: apt-get download failed: {loaded.stderr.strip()[-200:]}")
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)
        (folder / "root").rename(root)
    return root


def _wait_until_ready(slurm: Slurm, daemon: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until_s and daemon.poll() is None:
        try:
            slurm.estimate(Ask(1, 1, 1))
            return
        except (subprocess.CalledProcessError, NotRun):
            time.sleep(0.5)
    raise NotRun(f"slurmctld did not come up: {log.read_text()[-500:] if log.exists() else 'it wrote no log'}")


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listed(id_: str, state: str, nodes: str, start: str, end: str) -> Listed:
    return Listed(id_, state != "PENDING", _names(nodes), _seconds(start), _seconds(end))


def _seconds(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _names(nodes: str) -> tuple[str, ...]:
    """Returns e.g. `n[1-3,7]` or `n5`."""
    found: list[str] = []
    for part in re.sub(r"[n\[\]]", "", nodes).split(","):
        first, _, last = part.partition("-")
        found += [f"n{number}" for number in range(int(first), int(last or first) + 1)] if first else []
    return tuple(found)

"""Programs of a control plane that do not run for a while."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import ROOT, wait_for
from tests.kube.cluster import SOON_S, Cluster, KubeError

# Of deploy/processes, so that deploy/kube knows them again, and ends them.
SCRIPT = 'dir=$1; shift; STOP_S=30; say() { echo "$*" >&2; }; . deploy/processes; "$@"'


@contextmanager
def without(cluster: Cluster, *programs: str) -> Iterator[None]:
    """They are killed, and started with the same arguments afterwards, in the order of `programs`. The API server answers then."""
    folder = cluster.kubeconfig.parent
    commands = {name: _command(folder, name) for name in programs}
    processes(folder, "stop", "KILL", *programs)
    try:
        yield
    finally:
        for name, command in commands.items():
            processes(folder, "start", name, *command)
        wait_for("the API server", lambda: _is_ready(cluster), within_s=SOON_S)


def _command(folder: Path, program: str) -> Sequence[str]:
    number = (folder / f"{program}.pid").read_text().split()[0]
    return Path(f"/proc/{number}/cmdline").read_text().rstrip("\0").split("\0")


def processes(folder: Path, *call: str) -> str:
    """Runs a function of deploy/processes with its pid files and logs in `folder` and returns what it prints.

    Raises CalledProcessError where it fails.
    """
    done = subprocess.run(["bash", "-c", SCRIPT, "bash", str(folder), *call], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _is_ready(cluster: Cluster) -> bool:
    try:
        return bool(cluster.wire.call("GET", "/readyz") == "ok")
    except KubeError:
        return False

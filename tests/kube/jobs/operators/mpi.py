"""Kubeflow's MPI operator beside a control plane: built from its source, with its definition and rights as it brings them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import START_S, Running, wait_for
from tests.kube.cluster import Cluster
from tests.kube.jobs.operators.parts import built, give_rights, kubeconfig, read

# Its git folder. The Go module proxy does not serve it to everybody.
SOURCE = os.environ.get("MPI_OPERATOR_SRC", "")
VERSION = "v0.8.0"
ACCOUNT = "mpi-operator"


@contextmanager
def mpi_jobs(cluster: Cluster, folder: Path) -> Iterator[None]:
    """The operator is at work until the end; its kind stays."""
    source = unpacked(folder / "source")
    cluster.make_kinds(*read(source / "manifests/base/kubeflow.org_mpijobs.yaml"))
    give_rights(cluster, ACCOUNT, read(source / "manifests/base/cluster-role.yaml"))
    env = {**os.environ, "KUBECONFIG": str(kubeconfig(cluster, folder, ACCOUNT))}
    program = built(source, "./cmd/mpi-operator")
    manager = Running([str(program), f"-lock-namespace={ACCOUNT}", "-logtostderr"], env=env, log=folder / "manager.log")
    manager.start()
    try:
        wait_for("the operator", lambda: "Started workers" in manager.log.read_text(), within_s=START_S)
        yield
    finally:
        manager.stop()


def unpacked(folder: Path) -> Path:
    folder.mkdir()
    found = subprocess.run(["git", "-C", SOURCE, "archive", VERSION], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=found.stdout, check=True)
    return folder

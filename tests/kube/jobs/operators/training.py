"""Kubeflow's training operator beside a control plane: built from its Go module, for PyTorchJobs alone, with its definition, rights and
webhook as it brings them.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import START_S, Running, free_port, wait_for
from tests.kube.cluster import Cluster, Object
from tests.kube.jobs.operators.parts import MODULES, built, give_rights, is_ready, kubeconfig, read, source_of

MODULE, TRAINING = MODULES / "training", "github.com/kubeflow/training-operator"
ACCOUNT = "kubeflow"
SERVICE, CERTIFICATE, HOOKS = "training-operator", "training-operator-webhook-cert", "validator.training-operator.kubeflow.org"
PYTORCH = "validator.pytorchjob.training-operator.kubeflow.org"
# The operator reads its Secret's files here and nowhere else; in a cluster a volume brings them.
MOUNT = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108


@contextmanager
def training_jobs(cluster: Cluster, folder: Path) -> Iterator[None]:
    """The operator is at work until the end; then its webhook is gone, and its kind stays."""
    base = source_of(MODULE, TRAINING) / "manifests/base"
    cluster.make_kinds(*read(base / "crds/kubeflow.org_pytorchjobs.yaml"))
    give_rights(cluster, ACCOUNT, read(base / "rbac/role.yaml"))
    port, health = free_port(), free_port()
    service = {"type": "ExternalName", "externalName": "127.0.0.1"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CERTIFICATE, "namespace": ACCOUNT}}
    hooks = webhook(read(base / "webhook/manifests.yaml")[0], port)
    cluster.delete("secret", CERTIFICATE, namespace=ACCOUNT)
    cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": ACCOUNT}, "spec": service}, secret, hooks
    )
    env = {**os.environ, "KUBECONFIG": str(kubeconfig(cluster, folder, ACCOUNT)), "MY_POD_NAMESPACE": ACCOUNT}
    options = ["--enable-scheme=pytorchjob", "--metrics-bind-address=0", f"--health-probe-bind-address=127.0.0.1:{health}"]
    program = built(MODULE, f"{TRAINING}/cmd/training-operator.v1")
    manager = Running([str(program), *options, f"--webhook-server-port={port}"], env=env, log=folder / "manager.log")
    manager.start()
    try:
        wait_for("its certificate", lambda: is_mounted(cluster), within_s=START_S)
        wait_for("the operator", lambda: is_ready(health), within_s=START_S)
        yield
    finally:
        cluster.delete(hooks["kind"], HOOKS)
        manager.stop()


def webhook(found: Object, port: int) -> Object:
    """The one of PyTorchJobs, with a Service that leads to this machine. The operator writes its authority into it."""
    (hook,) = [each for each in found["webhooks"] if each["name"] == PYTORCH]
    hook["clientConfig"]["service"] |= {"name": SERVICE, "namespace": ACCOUNT, "port": port}
    return {**found, "metadata": {"name": HOOKS}, "webhooks": [hook]}


def is_mounted(cluster: Cluster) -> bool:
    """Does what a kubelet does with the operator's Secret."""
    found = cluster.get("secret", CERTIFICATE, namespace=ACCOUNT) or {}
    MOUNT.mkdir(parents=True, exist_ok=True)
    for name, text in found.get("data", {}).items():
        (MOUNT / name).write_bytes(base64.b64decode(text))
    return "data" in found

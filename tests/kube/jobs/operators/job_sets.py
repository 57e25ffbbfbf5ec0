"""JobSet's own operator beside a control plane: built from its Go module, with its definition, rights and webhooks as it brings them."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.processes import START_S, Running, free_port, wait_for
from tests.kube.cluster import Cluster, Object
from tests.kube.jobs.operators.parts import MODULES, built, give_rights, is_ready, kubeconfig, read, source_of

MODULE, JOB_SET = MODULES / "jobset", "sigs.k8s.io/jobset"
ACCOUNT = "jobset-system"


@contextmanager
def job_sets(cluster: Cluster, folder: Path) -> Iterator[None]:
    """The operator is at work until the end; then its webhooks are gone, and its kind stays."""
    source = source_of(MODULE, JOB_SET) / "config/components"
    cluster.make_kinds(*read(source / "crd/bases/jobset.x-k8s.io_jobsets.yaml"))
    give_rights(cluster, ACCOUNT, read(source / "rbac/role.yaml"))
    port, health = free_port(), free_port()
    serving_certificate(cluster, folder)
    config = folder / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "kind": "Configuration",
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {"enable": False},
                "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
                "metrics": {"bindAddress": "0"},
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            }
        )
    )
    env = {**os.environ, "KUBECONFIG": str(kubeconfig(cluster, folder, ACCOUNT))}
    manager = Running([str(built(MODULE, JOB_SET)), "--config", str(config)], env=env, log=folder / "manager.log")
    manager.start()
    hooks = [calling(each, port, cluster) for each in webhooks(source)]
    try:
        wait_for("the operator", lambda: is_ready(health), within_s=START_S)
        cluster.apply(*hooks)
        yield
    finally:
        for each in hooks:
            cluster.delete(each["kind"], each["metadata"]["name"])
        manager.stop()


def serving_certificate(cluster: Cluster, folder: Path) -> None:
    """Write a key and a certificate for 127.0.0.1 that the cluster's authority signs."""
    (folder / "names").write_text("extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1")
    key, asked = str(folder / "tls.key"), str(folder / "asked")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run(
        ["openssl", "req", "-new", *curve, "-keyout", key, "-subj", "/CN=jobset", "-out", asked], check=True, capture_output=True
    )
    authority = ["-CA", str(cluster.folder / "ca.crt"), "-CAkey", str(cluster.folder / "ca.key"), "-set_serial", "4711"]
    made = ["-days", "10", "-extfile", str(folder / "names"), "-out", str(folder / "tls.crt")]
    subprocess.run(["openssl", "x509", "-req", "-in", asked, *authority, *made], check=True, capture_output=True)


def webhooks(source: Path) -> list[Object]:
    """Read the operator's webhooks and apply its patches, which limit the webhooks for pods to pods of JobSets."""
    found = read(source / "webhook/manifests.yaml")
    for each, patch in zip(found, ("mutating-patch.yaml", "validating-patch.yaml"), strict=True):
        (change,) = [change for change in read(source / "webhook/patches" / patch)[0] if change["path"] == "/webhooks/1"]
        each["webhooks"][1] = change["value"]
        each["metadata"]["name"] = f"jobset-{each['metadata']['name']}"
    return found


def calling(hooks: Object, port: int, cluster: Cluster) -> Object:
    """Let the webhooks call a port of this machine instead of a Service."""
    authority = base64.b64encode((cluster.folder / "ca.crt").read_bytes()).decode()
    for each in hooks["webhooks"]:
        path = each["clientConfig"]["service"]["path"]
        each["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return hooks

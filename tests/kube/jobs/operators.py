"""JobSet's own operator beside a control plane: built from its Go module, with its definition, rights and webhooks as it brings them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.processes import ROOT, START_S, Running, free_port, wait_for
from tests.kube.cluster import Cluster, Object
from tests.kube.wire import url_of

MODULE = ROOT / "tests/kube/operators"
CACHE = Path(os.environ.get("EGS_KUBE_CACHE") or Path.home() / ".cache/egs-kube")
JOB_SET = "sigs.k8s.io/jobset"
NAMESPACE, ACCOUNT = "jobset-system", "controller-manager"
# Kustomize would set these in the operator's own files.
NAMES = {"namespace": NAMESPACE, "name": ACCOUNT}


def built() -> Path:
    """Return the path of the manager. Go builds it once for each state of its go.mod, in some minutes."""
    pins = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    program = CACHE / f"operators-{hashlib.sha256(pins).hexdigest()[:16]}" / "jobset"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(".part")
        go("build", "-p", "2", "-trimpath", "-o", str(part), JOB_SET)
        part.replace(program)
    return program


def go(*arguments: str) -> str:
    done = subprocess.run(
        ["go", "-C", str(MODULE), *arguments], env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def job_sets(cluster: Cluster, folder: Path) -> Iterator[None]:
    """The operator is at work until the end; then its webhooks are gone, and its kind stays."""
    source = Path(go("list", "-m", "-f", "{{.Dir}}", JOB_SET).strip()) / "config/components"
    cluster.make_kinds(*read(source / "crd/bases/jobset.x-k8s.io_jobsets.yaml"))
    cluster.make_namespace(NAMESPACE)
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": NAMES}, *rights(source))
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
    env = {**os.environ, "KUBECONFIG": str(kubeconfig(cluster, folder))}
    manager = Running([str(built()), "--config", str(config)], env=env, log=folder / "manager.log")
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


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
    except httpx.HTTPError:
        return False


def read(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def rights(source: Path) -> list[Object]:
    """Return the roles that the operator's installation has, and no more."""
    (role,) = [each for each in read(source / "rbac/role.yaml") if each["kind"] == "ClusterRole"]
    role["metadata"]["name"] = "jobset-manager"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "jobset-manager"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobset-manager"},
        "subjects": [{"kind": "ServiceAccount", **NAMES}],
    }
    return [role, binding]


def kubeconfig(cluster: Cluster, folder: Path) -> Path:
    """Write a kubeconfig for the account of the operator, and return its path."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    token = cluster.wire.call("POST", path, asked)["status"]["token"]
    server = {"server": url_of(cluster.kubeconfig), "certificate-authority": str(cluster.folder / "ca.crt")}
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    made |= {"clusters": [{"name": "x", "cluster": server}], "users": [{"name": "x", "user": {"token": token}}]}
    made["contexts"] = [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE}}]
    file = folder / "kubeconfig"
    file.write_text(json.dumps(made))
    return file


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

"""Parts of all operators: they are built from Go, have an account with the roles that they bring, and answer for their health."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.processes import ROOT
from tests.kube.cluster import Cluster, Object
from tests.kube.wire import url_of

MODULES = ROOT / "tests/kube/operators"
CACHE = Path(os.environ.get("EGS_KUBE_CACHE") or Path.home() / ".cache/egs-kube")


def built(module: Path, package: str) -> Path:
    """Return the path of the program. Go builds it once for each state of its go.mod, in some minutes."""
    pins = b"".join((module / name).read_bytes() for name in ("go.mod", "go.sum"))
    program = CACHE / f"operators-{hashlib.sha256(pins).hexdigest()[:16]}" / Path(package).name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(".part")
        go(module, "build", "-p", "2", "-trimpath", "-o", str(part), package)
        part.replace(program)
    return program


def source_of(module: Path, name: str) -> Path:
    """Return the folder of a module that this one needs."""
    return Path(go(module, "list", "-m", "-f", "{{.Dir}}", name).strip())


def go(module: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["go", "-C", str(module), *arguments], env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
    except httpx.HTTPError:
        return False


def read(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def give_rights(cluster: Cluster, account: str, roles: Sequence[Object]) -> None:
    """Make the account, in a namespace of its name, with the first role that the operator's installation has, and no more."""
    cluster.make_namespace(account)
    role = next(each for each in roles if each["kind"] == "ClusterRole")
    role["metadata"] = {"name": f"{account}-operator"}
    subject = {"name": account, "namespace": account}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": subject}, role, binding)


def kubeconfig(cluster: Cluster, folder: Path, account: str) -> Path:
    """Write a kubeconfig for the account of the operator, and return its path."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{account}/serviceaccounts/{account}/token"
    token = cluster.wire.call("POST", path, asked)["status"]["token"]
    server = {"server": url_of(cluster.kubeconfig), "certificate-authority": str(cluster.folder / "ca.crt")}
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    made |= {"clusters": [{"name": "x", "cluster": server}], "users": [{"name": "x", "user": {"token": token}}]}
    made["contexts"] = [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": account}}]
    file = folder / "kubeconfig"
    file.write_text(json.dumps(made))
    return file

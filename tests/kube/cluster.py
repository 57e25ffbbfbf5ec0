"""Control planes of deploy/kube for tests, spoken to by kubectl as an administrator."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.e2e.processes import ROOT, wait_for

SOON_S = 60.0
Object = dict[str, Any]

MUTATING, CLAIMS = "mutatingadmissionpolicies.admissionregistration.k8s.io", "resourceclaims.resource.k8s.io"
RESIZE, POD_RESOURCES = "pods/resize", "spec.resources of a pod"


class KubeError(Exception):
    """A program of the control plane, or deploy/kube, failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Cluster:
    kubeconfig: Path
    programs: Path

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """What it prints. Raises KubeError with what it says else."""
        command = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), "--request-timeout=30s", *arguments]
        return _output(command, given=given)

    def has(self, what: str) -> bool:
        """One of those that came after Kubernetes 1.30: MUTATING, CLAIMS, RESIZE, POD_RESOURCES."""
        return what in _served(self)

    @property
    def mutating_version(self) -> str:
        """That of the API with mutating admission policies: v1, or v1beta1 where only that has them; empty where none has."""
        return _mutating_version(self)

    def apply(self, *objects: Object) -> None:
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind: str, name: str, *, namespace: str = "default") -> Object | None:
        """None where there is none."""
        found = self.kubectl("get", kind, name, "--namespace", namespace, "--ignore-not-found", "--output", "json")
        return dict(json.loads(found)) if found else None

    def list(self, kind: str, *, namespace: str = "default") -> list[Object]:
        return list(json.loads(self.kubectl("get", kind, "--namespace", namespace, "--output", "json"))["items"])

    def make_namespace(self, name: str) -> None:
        """With its default service account, without which no pod can be made."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.wait_for_account(name)

    def wait_for_account(self, namespace: str) -> None:
        wait_for("the service account", lambda: self.get("serviceaccount", "default", namespace=namespace), within_s=SOON_S)


@cache
def _served(cluster: Cluster) -> frozenset[str]:
    served = set(cluster.kubectl("api-resources", "--output", "name").split())
    served |= {each["name"] for each in json.loads(cluster.kubectl("get", "--raw", "/api/v1"))["resources"]}
    minor = int(json.loads(cluster.kubectl("get", "--raw", "/version"))["minor"])
    return frozenset(served | ({POD_RESOURCES} if minor >= 34 else set()))


@cache
def _mutating_version(cluster: Cluster) -> str:
    if not cluster.has(MUTATING):
        return ""
    api = json.loads(cluster.kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1"))
    return "v1" if any(each["name"] == "mutatingadmissionpolicies" for each in api["resources"]) else "v1beta1"


@contextmanager
def clusters(*names: str, folder: Path | None = None) -> Iterator[list[Cluster]]:
    """New control planes of these names, ended afterwards. Raises KubeError with the reason where there can be none."""
    deploy_kube("down", *names, folder=folder)
    try:
        yield started(*names, folder=folder)
    finally:
        deploy_kube("down", *names, folder=folder)


def started(*names: str, folder: Path | None = None) -> list[Cluster]:
    kubeconfigs = deploy_kube("up", *names, folder=folder).split()
    return [Cluster(Path(kubeconfig), programs()) for kubeconfig in kubeconfigs]


def programs() -> Path:
    """The folder with kubectl and the others. Builds them where they are not."""
    return Path(deploy_kube("build").strip())


def deploy_kube(*arguments: str, root: Path = ROOT, folder: Path | None = None, settings: dict[str, str] | None = None) -> str:
    """What it prints. `root`: the checkout; `folder`: where the clusters lie; `settings`: variables that differ from ours."""
    given = {"EGS_KUBE_DIR": str(folder)} if folder else {}
    return _output([str(root / "deploy/kube"), *arguments], settings=os.environ | given | (settings or {}))


def _output(command: list[str], *, given: str = "", settings: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=given, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KubeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout

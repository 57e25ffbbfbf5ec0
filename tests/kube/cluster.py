"""Tests speak to control planes of deploy/kube as an administrator."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.e2e.processes import ROOT, wait_for
from tests.kube.wire import JSON_PATCH, MERGE, KubeError, Object, Patch, Wire, wire_of

__all__ = ("KubeError", "Object")  # for whoever speaks of clusters alone

SOON_S = 60.0
MUTATING, CLAIMS = "mutatingadmissionpolicies.admissionregistration.k8s.io", "resourceclaims.resource.k8s.io"
RESIZE, POD_RESOURCES = "pods/resize", "spec.resources of a pod"
WORKLOADS = ("deployments", "statefulsets", "jobs", "pods")


@dataclass(frozen=True, slots=True)
class Cluster:
    kubeconfig: Path
    programs: Path

    @property
    def folder(self) -> Path:
        """It has the certificates of its authority and of some who are known to it."""
        return self.kubeconfig.parent

    @property
    def wire(self) -> Wire:
        return wire_of(self.kubeconfig)

    def settings(self, programs: Path | None = None) -> dict[str, str]:
        """Variables for a program that calls kubectl. `programs`: a folder that has another one."""
        path = os.pathsep.join((str(programs or self.programs), os.environ["PATH"]))
        # kubectl ends so soon that to collect garbage takes a fifth of its time.
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "PATH": path, "GOGC": "off"}

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Returns what the program prints. Raises KubeError with what it says else."""
        command = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), "--request-timeout=30s", *arguments]
        return _output(command, given=given, settings=self.settings())

    def has(self, what: str) -> bool:
        """Says whether this version has a feature that came after Kubernetes 1.30: MUTATING, CLAIMS, RESIZE or POD_RESOURCES."""
        return what in _served(self)

    @property
    def mutating_version(self) -> str:
        """Returns the version of the API with mutating admission policies: v1, or v1beta1 where only that has them, or ""."""
        return _mutating_version(self)

    def create(self, *objects: Object, namespace: str = "default") -> None:
        """An object that names a namespace goes into that."""
        for body in objects:
            path = self.wire.kind_of(body).path(body["metadata"].get("namespace", namespace))
            self.wire.call("POST", path, body, fieldValidation="Strict")

    def apply(self, *objects: Object) -> None:
        """An object that is there already gets what differs."""
        for body in objects:
            try:
                self.create(body)
            except KubeError as error:
                if "AlreadyExists" not in str(error):
                    raise
                path = self.wire.kind_of(body).path(body["metadata"].get("namespace", "default"), body["metadata"]["name"])
                self.wire.call("PATCH", path, body, type_=MERGE)

    def replace(self, body: Object, *, namespace: str) -> None:
        """Replaces whatever was written since it was read."""
        path = self.wire.kind_of(body).path(namespace, body["metadata"]["name"])
        if "resourceVersion" not in body["metadata"]:
            about = {**body["metadata"], "resourceVersion": self.wire.call("GET", path)["metadata"]["resourceVersion"]}
            body = {**body, "metadata": about}
        self.wire.call("PUT", path, body)

    def get(self, kind: str, name: str, *, namespace: str = "default") -> Object | None:
        """Returns None if there is none."""
        return self.wire.find("GET", self.wire.kind(kind).path(namespace, name))

    def list(self, kind: str, *, namespace: str = "default", selector: str = "") -> list[Object]:
        """An empty `namespace` means all."""
        found = self.wire.kind(kind)
        answer = self.wire.call("GET", found.path(namespace), **({"labelSelector": selector} if selector else {}))
        about = {"apiVersion": answer["apiVersion"], "kind": found.kind}  # an item of a list does not say so
        return [{**about, **item} for item in answer["items"]]

    def patch(
        self, kind: str, name: str, patch: Patch, *, namespace: str = "default", sub: str = "", type_: str = MERGE, user: str = ""
    ) -> None:
        """A list is a JSON Patch. `user`: in whose name."""
        path = self.wire.kind(kind).path(namespace, name, sub)
        self.wire.call("PATCH", path, patch, type_=JSON_PATCH if isinstance(patch, list) else type_, user=user, fieldValidation="Strict")

    def label(self, kind: str, name: str, *labels: str, namespace: str = "default", user: str = "") -> None:
        """Takes what kubectl does: `key=value`, or `key-` to take it off."""
        self._mark(kind, name, "labels", labels, namespace, user)

    def annotate(self, kind: str, name: str, *annotations: str, namespace: str = "default", user: str = "") -> None:
        self._mark(kind, name, "annotations", annotations, namespace, user)

    def _mark(self, kind: str, name: str, what: str, marks: tuple[str, ...], namespace: str, user: str) -> None:
        read = [mark.partition("=") for mark in marks]
        values = {key if equals else key.removesuffix("-"): value if equals else None for key, equals, value in read}
        self.patch(kind, name, {"metadata": {what: values}}, namespace=namespace, user=user)

    def scale(self, name: str, replicas: int, *, namespace: str) -> None:
        self.patch("deployment", name, {"spec": {"replicas": replicas}}, namespace=namespace)

    def delete(self, kind: str, *names: str, namespace: str = "default", waits: bool = False, **options: Any) -> None:
        """Deletes those of them that are there. `waits`: until they are gone. `options`: of the deletion, as the API names them."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", **options}
        for name in names:
            self.wire.find("DELETE", self.wire.kind(kind).path(namespace, name), body)
        if waits:
            wait_for(f"the end of {names}", lambda: not any(self.get(kind, name, namespace=namespace) for name in names), within_s=SOON_S)

    def clear(self, *namespaces: str) -> None:
        """Ends what is at work there. The namespace stays: to delete one costs the server hundreds of calls, and nobody minds it."""
        for namespace in namespaces:
            for kind in WORKLOADS:
                options = {"propagationPolicy": "Background", **({"gracePeriodSeconds": 0} if kind == "pods" else {})}
                self.wire.find("DELETE", self.wire.kind(kind).path(namespace), options)

    def make_namespace(self, name: str, **labels: str) -> None:
        """Makes it with its default service account, without which no pod can be made."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self.wait_for_account(name)

    def wait_for_account(self, namespace: str) -> None:
        wait_for("the service account", lambda: self.get("serviceaccount", "default", namespace=namespace), within_s=SOON_S)

    def make_kinds(self, *definitions: Object) -> None:
        """CustomResourceDefinitions, once they are served."""
        self.apply(*definitions)
        for body in definitions:
            wait_for("the kind", lambda name=body["metadata"]["name"]: self._is_established(name), within_s=SOON_S)

    def _is_established(self, name: str) -> bool:
        found = self.get("crd", name) or {}
        conditions = found.get("status", {}).get("conditions") or ()  # null at first
        return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


@cache
def _served(cluster: Cluster) -> frozenset[str]:
    served = {f"{kind.plural}.{kind.group}" for kind in cluster.wire.kinds()}
    served |= {f"{kind.plural}/{sub}" for kind in cluster.wire.kinds() for sub in kind.subs if not kind.group}
    minor = int(cluster.wire.call("GET", "/version")["minor"])
    return frozenset(served | ({POD_RESOURCES} if minor >= 34 else set()))


@cache
def _mutating_version(cluster: Cluster) -> str:
    versions = {kind.version for kind in cluster.wire.kinds() if kind.plural == "mutatingadmissionpolicies"}
    return next((version for version in ("v1", "v1beta1") if version in versions), "")


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
    """Returns the folder with kubectl and the others, and builds them where they are missing."""
    return Path(deploy_kube("build").strip())


def deploy_kube(*arguments: str, root: Path = ROOT, folder: Path | None = None, settings: dict[str, str] | None = None) -> str:
    """Returns what it prints. `root`: the checkout; `folder`: where the clusters lie; `settings`: variables that differ from ours."""
    given = {"EGS_KUBE_DIR": str(folder)} if folder else {}
    return _output([str(root / "deploy/kube"), *arguments], settings=os.environ | given | (settings or {}))


def _output(command: list[str], *, given: str = "", settings: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, input=given, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KubeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout

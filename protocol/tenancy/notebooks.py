"""Builds the parts of a notebook beside its Job: its token, port, home, and way through the cluster's ingress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from protocol.cluster_names import JOB_OF_POD
from protocol.tenancy.workloads import NOTEBOOK_HOME, NOTEBOOK_PORT, JobWorkload

TOKEN_KEY: Final = "token"  # noqa: S105  # of the Secret
COMMAND: Final = ["jupyter", "lab", "--ip=0.0.0.0", f"--port={NOTEBOOK_PORT}", "--no-browser", f"--ServerApp.root_dir={NOTEBOOK_HOME}"]
# The agent may not read these: they belong to the Job, and Kubernetes deletes them with it.
PARTS: Final = {("v1", "Secret"): "secrets", ("networking.k8s.io/v1", "Ingress"): "ingresses"}


@dataclass(frozen=True, slots=True)
class IngressWay:
    """`domain`: each notebook gets a name under it; "": the cluster has none."""

    scheme: str = ""
    domain: str = ""
    class_name: str = ""

    def host(self, work: JobWorkload) -> str:
        return f"{work.name}.{self.domain}"

    def url(self, work: JobWorkload) -> str:
        return f"{self.scheme}://{self.host(work)}/" if self.domain else ""


NO_INGRESS: Final = IngressWay()


def as_notebook(pod: dict[str, Any], work: JobWorkload) -> None:
    """Makes the pod of a Job one that serves JupyterLab."""
    (main,) = pod["containers"]
    main.setdefault("command", list(COMMAND))
    main["workingDir"] = NOTEBOOK_HOME
    main["ports"] = [{"name": "http", "containerPort": NOTEBOOK_PORT}]
    main["readinessProbe"] = {"tcpSocket": {"port": NOTEBOOK_PORT}, "periodSeconds": 2}
    main["env"] += [
        {"name": "HOME", "value": NOTEBOOK_HOME},
        {"name": "JUPYTER_TOKEN", "valueFrom": {"secretKeyRef": {"name": work.name, "key": TOKEN_KEY}}},
    ]
    if NOTEBOOK_HOME not in {path.rstrip("/") for path in work.volumes.values()}:
        pod["volumes"].append({"name": "home", "emptyDir": {}})
        main["volumeMounts"].append({"name": "home", "mountPath": NOTEBOOK_HOME})


def notebook_parts(work: JobWorkload, ingress: IngressWay) -> list[dict[str, Any]]:
    port = {"name": "http", "port": NOTEBOOK_PORT, "targetPort": NOTEBOOK_PORT}
    parts: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": {TOKEN_KEY: work.token}},
        {"apiVersion": "v1", "kind": "Service", "spec": {"selector": {JOB_OF_POD: work.name}, "ports": [port]}},
    ]
    if ingress.domain:
        parts.append({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": _ingress_spec(work, ingress)})
    return [{**part, "metadata": {"name": work.name}} for part in parts]


def _ingress_spec(work: JobWorkload, ingress: IngressWay) -> dict[str, Any]:
    host = ingress.host(work)
    backend = {"service": {"name": work.name, "port": {"number": NOTEBOOK_PORT}}}
    return {
        **({"ingressClassName": ingress.class_name} if ingress.class_name else {}),
        **({"tls": [{"hosts": [host]}]} if ingress.scheme == "https" else {}),
        "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
    }

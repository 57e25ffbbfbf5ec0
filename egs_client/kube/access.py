"""Reads a kubeconfig of EGS, and makes the few calls that need no more."""

from __future__ import annotations

import base64
import binascii
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from egs_client.errors import EgsError

CALL_S = 15.0


class ClusterRefused(EgsError):
    """The API server of a cluster does not answer, or does not allow it."""


@dataclass(frozen=True, slots=True)
class Access:
    server: str  # without a slash at its end
    tls: ssl.SSLContext
    token: str

    @classmethod
    def of(cls, kubeconfig: str) -> Access:
        """Raises ClusterRefused."""
        try:
            said = yaml.safe_load(kubeconfig)
            cluster, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
            ca = base64.b64decode(cluster["certificate-authority-data"]).decode() if "certificate-authority-data" in cluster else None
            return cls(str(cluster["server"]).rstrip("/"), ssl.create_default_context(cadata=ca), str(user["token"]))
        except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError, binascii.Error, ssl.SSLError) as error:
            raise ClusterRefused(f"The kubeconfig cannot be used: {error}.") from error

    @property
    def host(self) -> str:
        return urlsplit(self.server).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.server).port or 443

    def path(self, path: str) -> str:
        """Returns the path on the server, which may itself stand behind a path."""
        return f"{urlsplit(self.server).path}{path}"

    def running_pod(self, namespace: str, selector: str) -> str:
        """Returns the name of a running pod, or "". Raises ClusterRefused."""
        pods = self._get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"]
        running = (pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Running" and _stays(pod))
        return next(running, "")

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            answer = httpx.get(f"{self.server}{path}", params=params, headers=headers, verify=self.tls, timeout=CALL_S)
        except httpx.HTTPError as error:
            raise ClusterRefused(f"The API server at {self.server} does not answer: {error}.") from error
        if answer.status_code != 200:
            raise ClusterRefused(f"The API server answers {answer.status_code}: {reason_of(answer.text)}")
        found: dict[str, Any] = answer.json()
        return found


def reason_of(text: str) -> str:
    """Returns the message of a Status of Kubernetes, or the text itself."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError:
        said = None
    return str(said["message"] if isinstance(said, dict) and said.get("message") else text.strip())[:300]


def _stays(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]

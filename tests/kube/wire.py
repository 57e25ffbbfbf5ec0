"""An administrator speaks to the API server without a program in between: a call takes milliseconds, kubectl a tenth of a second.

Kinds are named as for kubectl: plural, singular, short. A test that shows something of kubectl itself calls kubectl (Cluster.kubectl).
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import yaml

Object = dict[str, Any]
Patch = Object | list[Object]

JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    f"application/{kind}" for kind in ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
)
DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TIMEOUT_S: Final = 30.0


class KubeError(Exception):
    """The API server, a program of the control plane, or deploy/kube refused or failed; the message is what it said."""


class Kind(NamedTuple):
    group: str
    version: str
    kind: str
    plural: str
    names: frozenset[str]
    subs: frozenset[str]
    is_namespaced: bool

    def path(self, namespace: str, *parts: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        space = f"/namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return "/".join((f"{root}{space}/{self.plural}", *(quote(part, safe="") for part in parts if part)))


def url_of(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


def tls_of(folder: Path, who: str = "") -> ssl.SSLContext:
    """Returns the TLS settings of a cluster's folder. `who` names the client certificate; "" means none."""
    tls = ssl.create_default_context(cafile=folder / "ca.crt")
    if who:
        tls.load_cert_chain(folder / f"{who}.crt", folder / f"{who}.key")
    return tls


class Wire:
    """May be used by several threads. Each call raises nothing but KubeError."""

    def __init__(self, kubeconfig: Path) -> None:
        folder = kubeconfig.parent
        self._client = httpx.Client(base_url=url_of(kubeconfig), verify=tls_of(folder, "admin"), timeout=TIMEOUT_S, trust_env=False)
        self._kinds: tuple[Kind, ...] = ()

    def call(self, method: str, path: str, body: Any = None, *, type_: str = "application/json", user: str = "", **params: str) -> Any:
        """Returns the answer: an object, or text. It speaks in the name of `user`."""
        answer = self._asked(method, path, body, type_=type_, user=user, **params)
        if answer.is_error:
            raise _refusal(answer)
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def find(self, method: str, path: str, body: Any = None) -> Object | None:
        """Returns None if there is none."""
        answer = self._asked(method, path, body)
        if answer.status_code == 404:
            return None
        if answer.is_error:
            raise _refusal(answer)
        return dict(answer.json())

    def appearing(self, path: str, *, for_s: int, **params: str) -> Iterator[Object]:
        """Each object that is in this list, or comes into it within so many seconds, once."""
        asked = {**params, "watch": "1", "timeoutSeconds": str(for_s)}
        with self._client.stream("GET", path, params=asked) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ADDED":
                    yield event["object"]

    def _asked(
        self, method: str, path: str, body: Any, *, type_: str = "application/json", user: str = "", **params: str
    ) -> httpx.Response:
        headers = {"Content-Type": type_, **({"Impersonate-User": user} if user else {})}
        content = None if body is None else json.dumps(body)
        try:
            return self._client.request(method, path, content=content, headers=headers, params=params)
        except httpx.HTTPError as error:
            raise KubeError(f"{method} {path}: {type(error).__name__}: {error}") from error

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def kinds(self, *, anew: bool = False) -> tuple[Kind, ...]:
        if anew or not self._kinds:
            self._kinds = tuple(kind for path in ("/api", "/apis") for kind in self._discovered(path))
        return self._kinds

    def kind(self, name: str) -> Kind:
        return self._known(lambda kind: name.lower() in kind.names, name)

    def kind_of(self, obj: Object) -> Kind:
        group, _, version = obj["apiVersion"].rpartition("/")
        wanted = (group, version, obj["kind"])
        return self._known(lambda kind: (kind.group, kind.version, kind.kind) == wanted, "/".join(wanted))

    def _known(self, is_it: Callable[[Kind], bool], what: str) -> Kind:
        for anew in (False, True):  # somebody may have installed it since
            for kind in self.kinds(anew=anew):
                if is_it(kind):
                    return kind
        raise KubeError(f"the server has no kind {what}")

    def _discovered(self, path: str) -> Iterator[Kind]:
        answer = self._client.get(path, headers={"Accept": DISCOVERY})
        answer.raise_for_status()
        for group in answer.json()["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                for each in version.get("resources", ()):
                    kind = each["responseKind"]["kind"]
                    names = (each["resource"], each.get("singularResource", ""), kind.lower(), *each.get("shortNames", ()))
                    yield Kind(
                        group=name,
                        version=version["version"],
                        kind=kind,
                        plural=each["resource"],
                        names=frozenset(names),
                        subs=frozenset(sub["subresource"] for sub in each.get("subresources", ())),
                        is_namespaced=each["scope"] == "Namespaced",
                    )


def _refusal(answer: httpx.Response) -> KubeError:
    asked = f"{answer.request.method} {answer.request.url.path}: {answer.status_code}"
    try:
        status = answer.json()
    except ValueError:
        return KubeError(f"{asked} {answer.text}")
    return KubeError(f"{asked} {status.get('reason', '')} {status.get('message', '')}")


def wire_of(kubeconfig: Path) -> Wire:
    """One for the process; another where a cluster has begun anew."""
    return _wire(kubeconfig, kubeconfig.stat().st_mtime_ns)


@cache
def _wire(kubeconfig: Path, _: int) -> Wire:
    return Wire(kubeconfig)

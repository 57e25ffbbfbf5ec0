"""Calls to one API server, with an error class for each kind of refusal.

Answers are decoded into structs that name only the needed fields.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import msgspec

from protocol.cluster_names import FIELD_MANAGER
from protocol.decoding import decode
from worker_agent import VERSION
from worker_agent.cluster.base import ClusterError, Throttled, Unavailable, WriteConflict

T = TypeVar("T")
Params = dict[str, str | int | bool]
Op = dict[str, Any]  # one operation of a JSON Patch (RFC 6902)

TIMEOUT_S: Final = 5.0  # sent to the server as well, so that it gives up before the client does
CONNECT_S: Final = 3.0
JSON: Final = "application/json"
PATH_SHOWN: Final = 200
WEBHOOK_AWAY: Final = "failed calling webhook"  # words of the API server; it has stored nothing then
TOKEN_KEPT_S: Final = 60.0  # a projected token is renewed long before it expires
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Missing(WriteConflict):
    """The server answered 404 and changed nothing."""


class Forbidden(ClusterError):
    """The server answered 401 or 403. One that has just started may answer so although the right exists."""


class VersionGone(ClusterError):
    """The server answered 410, since the requested version is too old: read everything again."""


class WebhookAway(Unavailable):
    """The server answered 500, since a required admission webhook did not answer, and changed nothing."""


class DisruptionBudget(Throttled):  # 429 to an eviction
    def __init__(self) -> None:
        super().__init__()
        self.args = ("a PodDisruptionBudget allows no eviction now",)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    class Details(msgspec.Struct, frozen=True):
        class StatusCause(msgspec.Struct, frozen=True):
            reason: str = ""

        causes: tuple[StatusCause, ...] = ()
        retryAfterSeconds: float = 0.0  # the wire name

    code: int = 0
    message: str = ""
    reason: str = ""
    details: Details | None = None


class Access(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    tls: ssl.SSLContext | bool
    bearer: Callable[[], str]  # called for each request; returns "" without a token
    ca: str = ""  # PEM


def access_by_kubeconfig(path: Path) -> Access:
    """Raises ClusterError when the file cannot be used."""
    # Imported here because it takes 60 MiB, which an agent inside its cluster does not need.
    from kubernetes import config

    try:
        configuration = config.new_client_from_config(str(path)).configuration
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if not configuration.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        ca = Path(configuration.ssl_ca_cert).read_text() if configuration.ssl_ca_cert else ""
    except (config.ConfigException, OSError) as error:
        raise ClusterError(f"the kubeconfig {path} cannot be used: {error}") from error
    return Access(
        url=configuration.host,
        tls=tls,
        bearer=lambda: str(configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""),
        ca=ca,
    )


def access_in_cluster(host: str, port: str, folder: Path = SERVICE_ACCOUNT) -> Access:
    """Raises ClusterError where the pod has no ServiceAccount."""
    if not host or not port:
        raise ClusterError("this is no pod of a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    try:
        tls, ca = ssl.create_default_context(cafile=folder / "ca.crt"), (folder / "ca.crt").read_text()
    except OSError as error:
        raise ClusterError(f"the pod has no service account: {error}") from error
    name = f"[{host}]" if ":" in host else host
    return Access(url=f"https://{name}:{port}", tls=tls, bearer=_TokenFile(folder / "token"), ca=ca)


class _TokenFile:
    def __init__(self, path: Path) -> None:
        self._path, self._bearer, self._read_mono = path, "", float("-inf")

    def __call__(self) -> str:
        if time.monotonic() - self._read_mono > TOKEN_KEPT_S:
            self._bearer, self._read_mono = f"Bearer {self._path.read_text().strip()}", time.monotonic()
        return self._bearer


class Api:
    """Threads may share it. Its calls raise only ClusterError."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client = httpx.Client(
            base_url=access.url,
            verify=access.tls,
            headers={"User-Agent": f"egs-agent/{VERSION}", "Accept": "application/json"},
            timeout=httpx.Timeout(TIMEOUT_S + 1.0, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            trust_env=False,
        )

    def get(self, path: str, type_: type[T], **params: str | int | bool) -> T:
        return _decoded(self._call("GET", path, params=params), type_)

    def text(self, path: str, *, timeout_s: float = TIMEOUT_S, **params: str | int | bool) -> str:
        return self._call("GET", path, params=params, timeout_s=timeout_s).decode(errors="replace")

    def patch(self, path: str, ops: Sequence[Op], type_: type[T], **params: str | int | bool) -> T:
        """Raises WriteConflict when a `test` fails."""
        return self._write("PATCH", path, ops, type_, params, "application/json-patch+json")

    def apply(self, path: str, body: Any, type_: type[T], **params: str | int | bool) -> T:
        """Server-side apply that takes over fields from other managers."""
        return self._write("PATCH", path, body, type_, {"force": True, **params}, "application/apply-patch+yaml")

    def create(self, path: str, body: Any, type_: type[T], **params: str | int | bool) -> T:
        return self._write("POST", path, body, type_, params)

    def replace(self, path: str, body: Any, type_: type[T]) -> T:
        """Raises WriteConflict when metadata.resourceVersion is given and out of date."""
        return self._write("PUT", path, body, type_, {})

    def delete(self, path: str, *, uid: str = "", grace_s: int | None = None) -> None:
        """Raises WriteConflict when the object has not this `uid`."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s  # 0 does not wait for the node
        self._call("DELETE", path, body=msgspec.json.encode(options))

    @contextmanager
    def stream(self, path: str, params: Params, *, silence_s: float) -> Iterator[StreamLines]:
        """Returns the lines of a watch. Raises Unavailable after `silence_s` without any."""
        timeout = httpx.Timeout(silence_s, connect=CONNECT_S)
        try:
            with self._client.stream("GET", path, params=params, headers=self._headers(), timeout=timeout) as answer:
                if answer.is_error:
                    answer.read()
                    raise _refusal(answer)
                yield StreamLines(answer)
        except httpx.HTTPError as error:
            raise Unavailable(f"GET {path}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._client.close()

    def _write(self, method: str, path: str, body: Any, type_: type[T], params: Params, kind: str = JSON) -> T:
        mine = {"fieldManager": FIELD_MANAGER, **params}
        return _decoded(self._call(method, path, params=mine, body=msgspec.json.encode(body), kind=kind), type_)

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        kind: str = JSON,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        headers = {**({"Content-Type": kind} if body is not None else {}), **self._headers()}
        timed = {"timeout": f"{timeout_s:g}s", **(params or {})}
        patience = httpx.Timeout(timeout_s + 1.0, connect=CONNECT_S)
        try:
            answer = self._client.request(method, path, params=timed, content=body, headers=headers, timeout=patience)
        except httpx.HTTPError as error:
            raise Unavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        except httpx.InvalidURL as error:  # not an HTTPError: the path is invalid, for example 64 KiB long
            raise ClusterError(f"{method} {path[:PATH_SHOWN]}: {error}") from error
        if answer.is_error:
            raise _refusal(answer)
        return answer.content

    def _headers(self) -> dict[str, str]:
        try:
            bearer = self._access.bearer()
        except OSError as error:
            raise Unavailable(f"the token of the service account cannot be read: {error}") from error
        return {"Authorization": bearer} if bearer else {}


class StreamLines:
    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._answer.iter_bytes():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line for line in whole if line)

    def cut(self) -> None:
        """Another thread may call it: a reader that waits for a line gets a connection error."""
        connection = self._answer.extensions["network_stream"].get_extra_info("socket")
        with suppress(OSError):  # already closed
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # SSLSocket.shutdown would change state that the reader uses


def _decoded(body: bytes, type_: type[T]) -> T:
    try:
        return decode(body, type_)
    except msgspec.DecodeError as error:
        raise Unavailable(f"an answer of the API server cannot be read: {error}") from error


def _refusal(answer: httpx.Response) -> ClusterError:
    try:
        status = decode(answer.content, Status)
    except msgspec.DecodeError:
        status = Status(message=answer.text[:200])
    error = _error_of(answer, status)
    error.words = status.message
    return error


def _error_of(answer: httpx.Response, status: Status) -> ClusterError:
    details = status.details or Status.Details()
    text = f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {status.reason} {status.message}".strip()
    match answer.status_code:
        case 401 | 403:
            return Forbidden(text)
        case 404:
            return Missing(text)
        case 409 | 422:
            return WriteConflict(text)
        case 410:
            return VersionGone(text)
        case 429:
            is_budget = any(cause.reason == "DisruptionBudget" for cause in details.causes)
            return DisruptionBudget() if is_budget else Throttled(details.retryAfterSeconds or 1.0)
        case code if code < 500:
            return ClusterError(text)  # the agent's own mistake; nothing was changed
        case _:
            return WebhookAway(text) if WEBHOOK_AWAY in status.message else Unavailable(text)

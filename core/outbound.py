"""Offers the only way to an address that a user gave: a POST that cannot reach what only this machine or its network may reach.

Its host is resolved once, every address found is checked, and the connection goes to an address that was checked, so a name that changes
its answer gains nothing. It follows no redirect. Time and size of the answer are limited.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import httpcore
from django.conf import settings

TIMEOUT_S: Final = 5.0
ANSWER_MAX_BYTES: Final = 64 * 1024
URL_MAX_CHARS: Final = 500
URL_MUST: Final = "Must be an address as https://host.example/path, without a user name, a password or a fragment."
HOW_TO_ALLOW: Final = "An administrator can allow its network with EGS_OUTBOUND_ALLOW."
Address = IPv4Address | IPv6Address
# Public by their numbers, yet they answer every machine of a cloud with what is its own: Azure's platform, Oracle's metadata.
OF_CLOUDS: Final = frozenset(map(ip_address, ("168.63.129.16", "192.0.0.192")))
# Addresses that stand for others: NAT64, 6to4, and IPv4-compatible ones.
DISGUISES: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("2002::/16"), IPv6Network("::/96"))


class NotSent(Exception):
    """`is_final`: another try would not help. The text is ours; it holds nothing of the answer."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.text, self.is_final = text, is_final


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


def url_fault(url: str) -> str:
    """Return the fault in the form of this URL as a sentence, or "". The address behind it is checked when the URL is used."""
    if len(url) > URL_MAX_CHARS:
        return f"Must have {URL_MAX_CHARS} characters at most."
    parts = _split(url)
    if parts is None or parts.username is not None or parts.password is not None or parts.fragment:
        return URL_MUST
    try:
        address = ip_address(parts.hostname or "")
    except ValueError:
        return ""
    return _address_fault(address, is_tls=parts.scheme == "https")


def post(
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float | None = None,
    answer_max_bytes: int = ANSWER_MAX_BYTES,
    ca_pem: str = "",
) -> Answer:
    """Trusts the certificates of `ca_pem` instead of the system's, where it is given. Raises NotSent."""
    timeout_s = timeout_s or TIMEOUT_S
    parts = _split(url)
    if parts is None:
        raise NotSent(URL_MUST, is_final=True)
    backend = _GuardedBackend(is_tls=parts.scheme == "https", until_s=time.monotonic() + timeout_s)
    given = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
    try:
        with (
            httpcore.ConnectionPool(ssl_context=_tls(ca_pem), network_backend=backend) as pool,
            pool.stream("POST", url, headers=given, content=body, extensions={"timeout": timeouts}) as response,
        ):
            said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return Answer(response.status, said, _read(response.iter_stream(), answer_max_bytes))
    except httpcore.TimeoutException:
        raise NotSent(f"No answer came within {timeout_s:.0f} s.") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError, OSError):
        raise NotSent("The connection failed.") from None


def resolve(host: str, port: int) -> list[Address]:
    """Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(str(where[4][0]).partition("%")[0]) for where in found))


def _split(url: str) -> SplitResult | None:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # it raises for what is no port
    except ValueError:
        return None
    return parts if parts.scheme in {"https", "http"} and parts.hostname else None


def _checked_addresses(host: str, port: int, *, is_tls: bool) -> list[Address]:
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError):
        raise NotSent("Its host name could not be resolved.") from None
    for address in addresses:
        if fault := _address_fault(address, is_tls=is_tls):
            raise NotSent(fault, is_final=True)
    return addresses


def _address_fault(address: Address, *, is_tls: bool) -> str:
    """Says why EGS sends nothing there, or returns "". The answer never tells the address that a name has inside this network."""
    known: Sequence[IPv4Network | IPv6Network] = settings.EGS_OUTBOUND_ALLOW
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in known if network.version == plain.version):
        return ""
    is_disguised = any(plain in network for network in DISGUISES if network.version == plain.version)
    if not plain.is_global or plain.is_multicast or is_disguised or plain in OF_CLOUDS:
        return f"EGS sends nothing to an address inside this network. {HOW_TO_ALLOW}"
    return "" if is_tls else f"EGS sends nothing without https. {HOW_TO_ALLOW}"


def _read(chunks: Iterable[bytes], max_bytes: int) -> bytes:
    body = b""
    for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            raise NotSent(f"The answer was longer than {max_bytes // 1024} KiB.")
    return body


@lru_cache(maxsize=64)
def _tls(ca_pem: str) -> ssl.SSLContext:
    """Raises ValueError or OSError for what is no certificate."""
    if not ca_pem.isascii():
        raise ValueError("PEM is ASCII")
    return ssl.create_default_context(cadata=ca_pem or None)


def ca_fault(ca_pem: str) -> str:
    try:
        _tls(ca_pem)
    except (ValueError, OSError):
        return "Must be certificates as PEM text."
    return ""


class _GuardedBackend(httpcore.NetworkBackend):
    def __init__(self, *, is_tls: bool, until_s: float) -> None:
        self._is_tls, self._until_s = is_tls, until_s
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        failed: Exception = httpcore.ConnectError("no address")
        for address in _checked_addresses(host, port, is_tls=self._is_tls):
            try:
                stream = self._sockets.connect_tcp(str(address), port, timeout=_left_s(self._until_s), socket_options=socket_options)
            except httpcore.ConnectError as error:
                failed = error
            else:
                return _BoundedStream(stream, self._until_s)
        raise failed


class _BoundedStream(httpcore.NetworkStream):
    """Ends all waiting at one moment: a peer that sends a byte now and then gains no time."""

    def __init__(self, stream: httpcore.NetworkStream, until_s: float) -> None:
        self._stream, self._until_s = stream, until_s

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(self._until_s))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(self._until_s))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, _left_s(self._until_s)), self._until_s)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise httpcore.ReadTimeout("The time is over.")
    return left_s

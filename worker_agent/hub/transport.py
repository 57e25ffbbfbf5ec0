"""Talks HTTP to the hub. Each lane has its own client."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from protocol.agents.transport import BODY_MAX_BYTES, PROTO
from worker_agent import VERSION
from worker_agent.hub.dialog import Call


class NoAnswer(Exception):
    """Tell whether the hub received the call is not known."""


class NoTrust(Exception):
    """The file of certificate authorities cannot be used; the message is for people."""


def trust_in(ca: Path) -> ssl.SSLContext:
    """Trust only the certificate authorities in this PEM file. Raises NoTrust."""
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise NoTrust(f"{ca} holds no certificates in PEM form ({error.reason or error})") from error
    except OSError as error:
        raise NoTrust(f"{ca} cannot be read: {error.strerror or error}") from error


class Http:
    def __init__(self, hub: str, *, trust: ssl.SSLContext | None = None) -> None:
        # Without `trust`, the system's certificate authorities count.
        headers = {"EGS-Proto": PROTO, "User-Agent": f"egs-agent/{VERSION}", "Content-Type": "application/json"}
        # Redirects are not followed: the credential goes to the hub that the operator named, and nowhere else.
        self._client = httpx.Client(base_url=hub, headers=headers, follow_redirects=False, verify=trust or True)

    def post(self, call: Call) -> tuple[int, bytes, float]:
        """Return status, body and the seconds of Retry-After. Raises NoAnswer."""
        headers = {"Authorization": f"Bearer {call.bearer}"} if call.bearer else {}
        timeout = httpx.Timeout(call.timeout_s, connect=5.0)
        try:
            answer = self._client.post(call.path, content=call.body, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        if len(answer.content) > BODY_MAX_BYTES:
            raise NoAnswer(f"the answer has {len(answer.content)} bytes (limit {BODY_MAX_BYTES})")
        return answer.status_code, answer.content, _seconds(answer.headers.get("Retry-After", ""))


def _seconds(retry_after: str) -> float:
    # The other form, a date, needs clocks that agree; the backoff replaces it.
    return float(retry_after) if retry_after.isdecimal() else 0.0

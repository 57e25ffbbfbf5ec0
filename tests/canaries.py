"""Looks for secrets in whatever the hub answers, logs or records while tests run. `LEAKS` fails the test during which one is found."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from django.conf import settings
from django.http import HttpRequest
from django.test.client import ClientHandler

# Secrets that have a form of their own: tokens, codes of terminals, keys of webhooks, tokens and webhooks of Slack; and the planted ones.
SHAPED: Final = re.compile(
    r"egs[uab]_[0-9A-Za-z]{12}_[0-9A-Za-z]{36}|egs[wd]_[\w-]{43}|xoxb-[\w-]+|hooks\.slack\.com/services/\w+|canary-secret-\w+"
)
# POSTs whose answers show a new secret, once. No answer to a GET does.
SHOWN_ONCE: Final = re.compile(
    r"/api/v1/(tokens/(.+/rotate/)?|device-logins/(take/)?|clusters/.+/join-token/|channels/(.+/replace-key/)?|slices/.+/kubeconfig/.+/read/|manifests/apply/)"
    r"|/agent/v1/.+|/setup/.*|/account/tokens/new/|/admin/clusters/.+/join-token/|/channels/new/webhook/|/channels/.+/replace-key/"
    r"|/workspaces/.+/access/.+/|/workspaces/.+/service-accounts/.+/tokens/new/|/api/v1/slices/.+/service-accounts/.+/tokens/(.+/rotate/)?"
)
LEAST_CHARS: Final = 16
LEAKS: Final[list[str]] = []


def secrets_in(text: str) -> set[str]:
    return {found[0] for found in SHAPED.finditer(text)} | {value for value in _configured() if value in text}


def scan(place: str, *texts: str) -> None:
    for secret in sorted(set().union(*map(secrets_in, texts))):
        LEAKS.append(f"{place}: {secret[:LEAST_CHARS]}…")


def look_everywhere(patch: pytest.MonkeyPatch) -> None:
    from core.written_sql import rows_insert
    from journal import services

    answer = ClientHandler.__call__

    def answers(handler: ClientHandler, environ: dict[str, Any]) -> Any:
        response: Any = answer(handler, environ)
        request: HttpRequest = response.wsgi_request
        place = f"answer to {request.method} {request.path}"
        if request.method != "GET" and SHOWN_ONCE.fullmatch(request.path):
            return response
        headers = "\n".join(f"{name}: {value}" for name, value in response.headers.items())
        if response.streaming:
            response.streaming_content = _scanned(place, response.streaming_content)
            scan(place, headers)
        else:
            scan(place, headers, response.content.decode(errors="replace"))
        return response

    def inserts(rows: Any, **given: Any) -> Any:
        for row in rows:
            scan(f"record {type(row).__name__}", repr(vars(row)))
        return rows_insert(rows, **given)

    patch.setattr(ClientHandler, "__call__", answers)
    patch.setattr(services, "rows_insert", inserts)


def read_logs() -> None:
    """Adds the reader of logs where it is not, or no longer: some tests set up logging anew."""
    logging.getLogger().addHandler(LOG_READER)


class _LogReader(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        scan(f"log of {record.name}", record.getMessage(), error)


LOG_READER: Final = _LogReader()


def _scanned(place: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        scan(place, chunk.decode(errors="replace"))
        yield chunk


def _configured() -> list[str]:
    found = [settings.SECRET_KEY, settings.EMAIL_HOST_PASSWORD, *settings.EGS_TOKEN_PEPPERS.values(), *settings.EGS_SECRET_KEYS.values()]
    found += [provider["client_secret"] for provider in settings.EGS_OIDC_PROVIDERS]
    return [value for value in dict.fromkeys(found) if len(value) >= LEAST_CHARS]

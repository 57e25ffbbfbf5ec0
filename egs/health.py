"""Answers questions for liveness, readiness and metrics.

egs/asgi.py serves these without middleware: they need no session, no redirect to HTTPS, and no check of the Host header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from ipaddress import ip_address

import redis
import structlog
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from prometheus_client import CONTENT_TYPE_LATEST

from accounts.models import IMPLIED_BY, Scope
from accounts.policy import is_overseer
from accounts.tokens.services import token_authenticate
from core.clock import db_now
from core.db_threads import in_db_thread
from core.request_origin import client_address
from core.rest.problems import problem, problem_response
from egs.metrics import scrape

log = structlog.get_logger(__name__)

HEALTH_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
READY_WITHIN_S = 5.0
# Each shows that the request came through a proxy, so REMOTE_ADDR is not the client's.
FORWARDED_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
NO_STORE = {"Cache-Control": "no-store"}


async def healthz(request: HttpRequest) -> HttpResponse:
    """Answers while the process and its event loop live. It does not check the database, whose outage a restart would not cure."""
    return JsonResponse({"status": "ok"}, headers=NO_STORE)


async def readyz(request: HttpRequest) -> HttpResponse:
    """Causes are only logged, since they may contain addresses."""
    try:
        checks = await asyncio.wait_for(in_db_thread(_run_checks), timeout=READY_WITHIN_S)
    except TimeoutError:
        checks = {"answer": "failed"}
    is_ready = all(result == "ok" for result in checks.values())
    body = {"status": "ready" if is_ready else "not ready", "checks": checks}
    return JsonResponse(body, status=200 if is_ready else 503, headers=NO_STORE)


async def metrics(request: HttpRequest) -> HttpResponse:
    """Open to allowed networks; else needs an administrator's token with the scope read."""
    if not _is_allowed_address(request):
        refusal = await in_db_thread(partial(_refusal, request))
        if refusal is not None:
            return refusal
    return HttpResponse(await in_db_thread(scrape), content_type=CONTENT_TYPE_LATEST)


def _run_checks() -> dict[str, str]:
    names = {"database": _check_database, "migrations": _check_migrations}
    if settings.EGS_REDIS_URL:
        names["redis"] = _check_redis
    return {name: _outcome(name, check) for name, check in names.items()}


def _outcome(name: str, check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        log.warning("not_ready", check=name, error=f"{type(error).__name__}: {error}")
        return "failed"
    return "ok"


def _check_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _check_migrations() -> None:
    missing = _newest_migrations() - MigrationRecorder(connection).applied_migrations().keys()
    if missing:
        raise LookupError(f"not applied: {sorted(missing)}")


@cache
def _newest_migrations() -> frozenset[tuple[str, str]]:
    """A database of a newer version has these, too."""
    return frozenset(MigrationLoader(None).graph.leaf_nodes())


def _check_redis() -> None:
    with redis.Redis.from_url(settings.EGS_REDIS_URL, socket_timeout=1, socket_connect_timeout=1) as client:
        client.ping()


def _is_allowed_address(request: HttpRequest) -> bool:
    if any(header in request.headers for header in FORWARDED_HEADERS):
        return False
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(address in network for network in settings.EGS_METRICS_ALLOW)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    scheme, _, plain = request.headers.get("Authorization", "").partition(" ")
    address = client_address(request)
    token = token_authenticate(plain=plain.strip(), address=address, now=db_now()) if scheme.lower() == "bearer" else None
    if token is None:
        detail = "Send an administrator's token of the scope read, or come from a network that EGS_METRICS_ALLOW names."
        response = problem_response(problem(status=401, code="not_authenticated", title="Not signed in", detail=detail))
        response.headers["WWW-Authenticate"] = "Bearer"
        return response
    if not is_overseer(token.user) or not IMPLIED_BY[Scope.READ] & set(token.scopes):
        detail = "Only an administrator may read the metrics."
        return problem_response(problem(status=403, code="not_allowed", title="You may not do this", detail=detail))
    return None


urlpatterns: list[URLPattern] = [path("healthz", healthz), path("readyz", readyz), path("metrics", metrics)]

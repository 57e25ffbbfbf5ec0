"""Requests to the ASGI application from any address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from egs.asgi import application
from tests.databases import db_threads_let_go

Connect = Callable[[str], httpx.AsyncClient]


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    yield
    db_threads_let_go()


@pytest.fixture
async def connect_from() -> AsyncIterator[Connect]:
    """A client at an address, who names the host by what a probe knows of it: an address that ALLOWED_HOSTS does not."""
    clients: list[httpx.AsyncClient] = []

    def connect(address: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(application, client=(address, 1))  # type: ignore[arg-type]  # its Send takes less
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://10.9.8.7:8000"))
        return clients[-1]

    yield connect
    for client in clients:
        await client.aclose()


@pytest.fixture
def local(connect_from: Connect) -> httpx.AsyncClient:
    return connect_from("127.0.0.1")

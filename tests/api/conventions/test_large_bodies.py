"""A body beyond the limit is refused before it is written anywhere, whoever sends it."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from django.conf import settings

from core.rest.problems import CONTENT_TYPE
from tests.inventory.http import request

pytestmark = pytest.mark.django_db(transaction=True)

MOST = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
PIECE = b"x" * 65_536


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how much of each body reached a file."""
    sizes: list[int] = []
    spooled = tempfile.SpooledTemporaryFile

    class Counted(spooled):  # type: ignore[valid-type]
        def write(self, data: Any) -> int:
            sizes.append(len(data))
            return int(super().write(data))

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", Counted)
    return sizes


@pytest.mark.parametrize("path", ["/api/v1/gprs/", "/nowhere"])
async def test_a_body_that_says_that_it_is_too_large_is_not_read(path: str, written: list[int]) -> None:
    response = await request(path, PIECE, headers={"content-length": str(MOST + 1)})

    assert response is not None
    assert (response.status, response.headers["content-type"], response.json["code"]) == (413, CONTENT_TYPE, "too_large")
    assert written == []


async def test_one_that_does_not_say_so_is_cut_off_at_the_limit(written: list[int]) -> None:
    response = await request("/api/v1/gprs/", [PIECE] * (MOST // len(PIECE) * 4), headers={"transfer-encoding": "chunked"})

    assert response is not None
    assert response.status == 413
    assert sum(written) <= MOST


async def test_one_within_the_limit_gets_its_answer() -> None:
    response = await request("/api/v1/gprs/", b"{}", headers={"content-length": "2", "content-type": "application/json"})

    assert response is not None
    assert response.status == 401

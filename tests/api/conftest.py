"""Tests of the API share a workspace with an owner and a viewer on two nodes, a stranger with his own, and clients for all."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from rest_framework.test import APIClient

from accounts.models import Scope, User
from inventory.models import Cluster
from planner.explain import STRANGER
from slices.models import Slice
from tests import factories
from tests.builders import SHAPE
from tests.factories import People

# As a blocker: of strangers nothing is told but that they are there.
A_STRANGER = {"id": None, "name": STRANGER, "is_running": None, "until": None, "nodes": None, "gpus_per_node": None}


class Answer(Protocol):
    """The test client returns it; this gives it types."""

    status_code: int
    content: bytes
    headers: Any

    def json(self) -> Any: ...
    def __getitem__(self, header: str) -> str: ...
    def __contains__(self, header: str) -> bool: ...


class Caller:
    """A client that speaks as somebody, below /api/v1/."""

    def __init__(self, secret: str | None = None) -> None:
        self.client = APIClient(raise_request_exception=True, enforce_csrf_checks=True)  # as the server does
        if secret is not None:
            self.client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")

    def get(self, path: str, **query: Any) -> Answer:
        return self._call("get", path, query or None)

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Answer:
        return self._call("post", path, {} if body is None else body, **({"headers": {"Idempotency-Key": key}} if key is not None else {}))

    def patch(self, path: str, body: Any) -> Answer:
        return self._call("patch", path, body)

    def delete(self, path: str) -> Answer:
        return self._call("delete", path)

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        return self._call(method.lower(), path, body)

    def raw(self, path: str, body: bytes, *, content_type: str = "application/json", method: str = "POST") -> Answer:
        response: Answer = self.client.generic(method, f"/api/v1/{path}", body, content_type)  # type: ignore[arg-type]
        return response

    def _call(self, method: str, path: str, data: Any = None, **extra: Any) -> Answer:
        url = path if path.startswith("http") else f"/api/v1/{path}"
        response: Answer = getattr(self.client, method)(url, data, **extra)
        return response


@dataclass(frozen=True, slots=True)
class World:
    """Its `slice` and `foreign_slice` share the cluster and nothing else."""

    people: People
    cluster: Cluster
    slice: Slice
    foreign_slice: Slice


@pytest.fixture(scope="module")
def built_people(module_db: None) -> People:
    return factories.make_people()


@pytest.fixture(scope="module")
def built_world(built_people: People) -> World:
    cluster = factories.cluster("aurora")
    mine = factories.make_slice(cluster, name="vision", owner=built_people.owner, viewers=[built_people.teammate])
    foreign = factories.make_slice(cluster, name="canary-slice", owner=built_people.outsider, of=factories.project("canary-project"))
    return World(built_people, cluster, mine, foreign)


@pytest.fixture
def people(built_people: People, db: None) -> People:
    return deepcopy(built_people)


@pytest.fixture
def world(built_world: World, db: None) -> World:
    return deepcopy(built_world)


@pytest.fixture
def as_user() -> Callable[..., Caller]:
    def caller(user: User, *scopes: Scope) -> Caller:
        return Caller(factories.token(user, *scopes))

    return caller


@pytest.fixture
def anonymous(db: None) -> Caller:
    return Caller()


@pytest.fixture
def owner(people: People) -> Caller:
    return Caller(factories.token(people.owner))


@pytest.fixture
def teammate(people: People) -> Caller:
    return Caller(factories.token(people.teammate))


@pytest.fixture
def outsider(people: People) -> Caller:
    return Caller(factories.token(people.outsider))


@pytest.fixture
def admin(people: People) -> Caller:
    return Caller(factories.token(people.admin))


@pytest.fixture
def reader(people: People) -> Caller:
    """The owner, with a token that may only read."""
    return Caller(factories.token(people.owner, Scope.READ))


@pytest.fixture
def half_admin(people: People) -> Caller:
    """He is the administrator, and his token lacks the scope admin."""
    return Caller(factories.token(people.admin, Scope.READ, Scope.WRITE))


@pytest.fixture
def ask(world: World) -> dict[str, Any]:
    """A request that starts at once."""
    return {"name": "train", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}


def assert_problem(response: Answer, status: int, code: str) -> dict[str, Any]:
    """The answer is an RFC 9457 document with our stable code and sentences."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code, body
    assert body["title"]
    assert body["detail"]
    return body


def faults(response: Answer) -> list[str]:
    """The fields that were refused as not valid."""
    errors = assert_problem(response, 400, "invalid_input")["errors"]
    return [name.split(".")[0] for name in errors]

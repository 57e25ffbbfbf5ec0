"""A workspace for the tests of the user's portal: its owner, a teammate who may only look, a stranger, an administrator, each signed in."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.test import Client

from accounts.models import Scope, User
from accounts.sessions import LOGIN_KEY
from inventory.models import Cluster
from slices.models import Slice
from tests import factories
from tests.builders import SHAPE
from tests.factories import People

HTMX = {"HX-Request": "true"}
WORKSPACE = "/workspaces/vision/"
CREATE = "/workspaces/vision/create/"
OFFERS = "/workspaces/vision/offers/"


@dataclass(frozen=True, slots=True)
class World:
    """Its `slice` and `foreign` share the cluster of two nodes and nothing else."""

    people: People
    cluster: Cluster
    slice: Slice
    foreign: Slice

    def client(self, persona: str, *scopes: Scope) -> Client:
        return client_of(getattr(self.people, persona), *scopes)


def make_world() -> World:
    people = factories.make_people()
    cluster = factories.cluster("aurora", nodes=2)
    mine = factories.make_slice(cluster, name="vision", owner=people.owner, viewers=[people.teammate])
    foreign = factories.make_slice(cluster, name="canary-slice", owner=people.outsider, of=factories.project("canary-project"))
    return World(people, cluster, mine, foreign)


def client_of(user: User, *scopes: Scope) -> Client:
    """Signed in without the login page; by a token that may all, if no scopes are named."""
    client = Client()
    session = client.session
    session[LOGIN_KEY] = str(factories.login(user, *scopes).pk)
    session.save()
    client.cookies["egs_session"] = session.session_key or ""
    return client


def form(**changes: Any) -> dict[str, Any]:
    """Returns what the browser sends for a request that starts at once. None leaves a field out."""
    given = {
        "name": "train",
        "shape": SHAPE,
        "min_gpu_memory_gib": "",
        "nodes": "1",
        "gpus_per_node": "",
        "duration": "1 h",
        "priority": "101",
        "run_checks": "on",
        "evictable": "on",
        "requeue_on_failure": "on",
        "key": uuid4().hex,
        **changes,
    }
    return {name: value for name, value in given.items() if value is not None}


def text(response: Any, status: int = 200) -> str:
    assert response.status_code == status, (response.status_code, response.content[-2000:])
    return str(response.content.decode())


@dataclass(frozen=True, slots=True)
class Snippet:
    """It has what the code beside the form would send."""

    key: str
    body: dict[str, Any]


def snippet_in(markup: str) -> Snippet:
    code = html.unescape(markup[markup.index('id="as-api"') :])
    body, key = re.search(r" -d '(.*?)'</pre>", code, re.DOTALL), re.search(r'"Idempotency-Key: (\w+)"', code)
    assert body, code
    return Snippet(key[1] if key else "", json.loads(body[1]))


def version_in(markup: str) -> str:
    found = re.search(r'name="version" value="(\d+)"', markup)
    assert found, markup
    return found[1]

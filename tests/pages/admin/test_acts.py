"""Decisions from the admin portal: each is asked first, with its preview, and what cannot be done says why."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gpr.models import Gpr, GprState
from journal.models import Event
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db


def url(gpr: Gpr, act: str) -> str:
    return f"/admin/queue/{gpr.pk}/{act}/"


def answer(gpr: Gpr, **typed: Any) -> dict[str, Any]:
    return {"version": gpr.version, "why": "the board decided", **typed}


def told(gpr: Gpr) -> Gpr:
    gpr.refresh_from_db()
    return gpr


@pytest.mark.parametrize(
    ("which", "act", "typed", "says"),
    [
        ("waits", "priority", {"priority": 250}, lambda gpr: gpr.priority == 250),
        ("waits", "reject", {}, lambda gpr: gpr.state == GprState.REJECTED),
        ("held", "approve", {}, lambda gpr: gpr.state == GprState.QUEUED),
        ("held", "reject", {}, lambda gpr: gpr.state == GprState.REJECTED),
        ("runs", "evict", {}, lambda gpr: gpr.state == GprState.EXITING),
    ],
)
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_the_question_writes_nothing_and_the_answer_does_it_once(
    which: str, act: str, typed: dict[str, Any], says: Any, headers: dict[str, str], admin_world: AdminWorld, admin: Client
) -> None:
    gpr: Gpr = getattr(admin_world, which)
    with CaptureQueriesContext(connection) as queries:
        asked = admin.get(url(gpr, act), headers=headers)
    assert asked.status_code == 200
    assert ("<dialog" in asked.content.decode()) == bool(headers)
    assert gpr.name in asked.content.decode()
    # The session is not written either: it holds nothing but the token.
    # PostgreSQL gives no text of statements that are sent together.
    assert {query["sql"].split(maxsplit=1)[0] for query in queries.captured_queries if query["sql"]} <= {"SELECT", "SAVEPOINT", "RELEASE"}

    done = admin.post(url(gpr, act), answer(gpr, **typed), headers=headers)
    again = admin.post(url(gpr, act), answer(gpr, **typed), headers=headers)

    assert says(told(gpr))
    if headers:
        assert done.status_code == 204
        assert gpr.name in json.loads(done["HX-Trigger"])["egs:toast"]["text"]
    else:
        assert done["Location"] == f"/admin/queue/{gpr.pk}/"
    # In a dialog the question comes back with what was refused, if there is still something to decide.
    assert b"It has changed since you read it" in again.content or b"There is nothing to" in again.content
    assert Event.objects.filter(gpr_id=gpr.pk, actor=admin_world.people.admin).count() == 1


def test_what_was_typed_stays_when_the_gpr_has_changed_meanwhile(admin_world: AdminWorld, admin: Client) -> None:
    old = admin_world.waits.version
    admin.post(url(admin_world.waits, "priority"), answer(admin_world.waits, priority=150))

    response = admin.post(url(admin_world.waits, "priority"), {"version": old, "priority": 290, "why": "audit"}, headers=HTMX)
    shown = response.content.decode()

    assert response.status_code == 200
    assert "It has changed since you read it" in shown
    assert 'value="290"' in shown
    assert 'value="audit"' in shown
    version = re.search(r'name="version" value="(\d+)"', shown)
    assert version
    assert int(version[1]) == told(admin_world.waits).version
    assert admin_world.waits.priority == 150


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        *(({"priority": wrong}, 422, "Not sent") for wrong in ("0", "301", "high", "", "1e3", "9" * 400)),
        *(({"priority": "250", "why": wrong}, 422, "Not sent") for wrong in ("x" * 151, "a\x00b")),
        *(({"priority": "250", "version": wrong}, 409, "decide again") for wrong in ("", "x", "-1")),
    ],
)
def test_what_cannot_be_is_told_at_the_field_and_changes_nothing(
    typed: dict[str, str], status: int, said: str, admin_world: AdminWorld, admin: Client
) -> None:
    before = admin_world.waits.version

    response = admin.post(url(admin_world.waits, "priority"), answer(admin_world.waits, **typed))

    markup = response.content.decode()
    assert response.status_code == status
    assert 'role="alert"' in markup
    assert said in markup
    assert told(admin_world.waits).version == before


@pytest.mark.parametrize(("which", "act"), [("waits", "reject"), ("runs", "evict")])
def test_a_decision_against_somebody_needs_a_reason(which: str, act: str, admin_world: AdminWorld, admin: Client) -> None:
    gpr: Gpr = getattr(admin_world, which)

    response = admin.post(url(gpr, act), answer(gpr, why="  "))

    assert response.status_code == 422
    assert told(gpr).state in {GprState.QUEUED, GprState.ACTIVE}


@pytest.mark.parametrize(
    ("which", "act"), [("runs", "priority"), ("runs", "approve"), ("waits", "evict"), ("waits", "approve"), ("runs", "reject")]
)
def test_what_the_state_does_not_allow_is_not_even_asked(which: str, act: str, admin_world: AdminWorld, admin: Client) -> None:
    gpr: Gpr = getattr(admin_world, which)

    assert admin.get(url(gpr, act)).status_code == 409
    assert admin.post(url(gpr, act), answer(gpr, priority=5)).status_code == 409


def test_the_id_of_nothing_is_not_found(admin: Client) -> None:
    for act in ("priority", "approve", "reject", "evict"):
        assert admin.get(f"/admin/queue/{uuid4()}/{act}/").status_code == 404
        assert admin.post(f"/admin/queue/{uuid4()}/{act}/", {"version": 1, "why": "x", "priority": 5}).status_code == 404


def test_a_preview_says_who_moves_and_by_how_much(admin_world: AdminWorld, admin: Client) -> None:
    shown = admin.get(url(admin_world.runs, "evict")).content.decode()

    assert "Its 2 nodes are expected back by" in shown
    assert "It waits again for the" in shown
    assert "1 other would start earlier" in shown
    assert ">waits<" in shown


def test_the_preview_follows_the_priority_that_is_typed(admin_world: AdminWorld, admin: Client) -> None:
    first = admin.post(
        url(admin_world.waits, "priority"), answer(admin_world.waits, priority="300", act="preview"), headers=HTMX
    ).content.decode()
    wrong = admin.post(
        url(admin_world.waits, "priority"), answer(admin_world.waits, priority="999", act="preview"), headers=HTMX
    ).content.decode()

    assert "It is planned as number 1" in first
    assert 'value="the board decided"' in first
    assert "300" in wrong  # the limit
    assert "planned as number" not in wrong


def test_a_form_from_another_site_is_refused(admin_world: AdminWorld) -> None:
    client = client_of(admin_world.people.admin)
    client.handler.enforce_csrf_checks = True

    assert client.post(url(admin_world.waits, "reject"), answer(admin_world.waits)).status_code == 403
    assert told(admin_world.waits).state == GprState.QUEUED

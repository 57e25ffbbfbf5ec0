"""/api/v1/notices/: everybody reads his own."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from core.clock import db_now
from slices.models import Membership
from tests.api.conftest import Caller, World, assert_problem
from tests.journal.notices.notices import told

pytestmark = pytest.mark.django_db


def test_the_newest_comes_first_and_pages_by_cursor(world: World, owner: Caller) -> None:
    now = db_now()
    for minutes in range(3):
        told(world.people.owner, f"number {minutes}", slice_id=world.slice.pk, at=now + timedelta(minutes=minutes))

    first = owner.get("notices/", page_size=2).json()
    second = owner.get(first["next"].split("/api/v1/")[1]).json()

    assert [row["text"] for row in first["results"]] == ["number 2", "number 1"]
    assert [row["text"] for row in second["results"]] == ["number 0"]
    row = first["results"][0]
    assert (row["kind"], row["severity"], row["slice"], row["read_at"]) == ("node", "warning", str(world.slice.pk), None)
    assert owner.get(f"events/?kind=gpr.spare_entering&slice={world.slice.pk}").json()["results"][0]["id"] == row["event"]


def test_what_is_read_is_unread_no_more(world: World, owner: Caller) -> None:
    first, second = (told(world.people.owner, text) for text in ("first", "second"))

    assert owner.post(f"notices/{first.pk}/read/").json()["read_at"] is not None
    read_at = owner.get(f"notices/{first.pk}/").json()["read_at"]
    assert owner.post(f"notices/{first.pk}/read/").json()["read_at"] == read_at

    assert [row["id"] for row in owner.get("notices/", unread="true").json()["results"]] == [str(second.pk)]
    assert [row["id"] for row in owner.get("notices/", unread="false").json()["results"]] == [str(first.pk)]
    assert owner.post("notices/read-all/").json() == {"read_count": 1}
    assert owner.get("notices/", unread="true").json()["results"] == []
    assert_problem(owner.get("notices/", unread="perhaps"), 400, "invalid_input")


def test_those_of_another_answer_as_those_that_are_not_there(world: World, owner: Caller, admin: Caller, teammate: Caller) -> None:
    mine = told(world.people.owner)

    for caller in (admin, teammate):
        assert caller.get("notices/").json()["results"] == []
        answers = [
            caller.call(method, f"notices/{pk}/{act}").json()
            for pk in (mine.pk, uuid4())
            for method, act in [("GET", ""), ("POST", "read/")]
        ]
        assert answers[:2] == answers[2:]
        assert answers[0]["status"] == 404
    assert teammate.post("notices/read-all/").json() == {"read_count": 0}
    assert owner.get("notices/", unread="true").json()["results"] != []


def test_a_member_who_was_removed_finds_none_of_the_workspace(world: World, teammate: Caller) -> None:
    notice = told(world.people.teammate, slice_id=world.slice.pk)
    assert len(teammate.get("notices/").json()["results"]) == 1

    Membership.objects.filter(user=world.people.teammate).delete()

    assert teammate.get("notices/").json()["results"] == []
    assert_problem(teammate.get(f"notices/{notice.pk}/"), 404, "not_found")

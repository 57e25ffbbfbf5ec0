"""Cursors: whatever is done to one, it is a page of this list or a clear 400."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from drf_spectacular.generators import SchemaGenerator

from slices.models import Project
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults

pytestmark = pytest.mark.both_databases


def packed(value: Any) -> str:
    return quote(base64.urlsafe_b64encode(json.dumps(value).encode()).decode())


UUID_TEXT = "4be0643f-1d98-573b-97cd-ca98a65347dd"
NONSENSE: list[Any] = [
    None,
    [],
    [True],
    {},
    "x",
    5,
    [False, []],
    [False, ["a"]],
    [5, ["a", UUID_TEXT]],
    [False, ["a", "b"]],
    [False, [5, UUID_TEXT]],
]
NONSENSE += [
    [False, ["a\u0000", UUID_TEXT]],
    [False, ["\ud800", UUID_TEXT]],
    [False, [["a"], UUID_TEXT]],
    [False, {"a": 1, "b": 2}],
    [False, "ab"],
]


def test_a_cursor_that_is_none_is_a_400(admin: Caller) -> None:
    for value in NONSENSE:
        assert faults(admin.get(f"projects/?cursor={packed(value)}")) == ["cursor"]


def test_every_list_refuses_a_cursor_that_is_not_its_own_and_a_page_of_no_rows(admin: Caller) -> None:
    schema: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    lists = [
        path
        for path, methods in schema["paths"].items()
        if "{" not in path and methods.get("get", {}).get("operationId", "").endswith("_list")
    ]
    assert len(lists) > 40
    for path in lists:
        for ask in ("cursor=x", "page_size=0"):
            found = admin.get(f"{path.removeprefix('/api/v1/')}?{ask}")
            assert (path, found.status_code, faults(found)) == (path, 400, [ask.split("=")[0]])


def test_text_that_is_no_cursor_is_a_400(admin: Caller) -> None:
    for text in ["", "x", "%00", "é", "=" * 5000, "A" * 100_000, quote(base64.urlsafe_b64encode(b"[" * 3000).decode())]:
        assert_problem(admin.get(f"projects/?cursor={text}"), 400, "invalid_input")


def test_a_moment_that_no_database_compares_is_a_400(owner: Caller) -> None:
    for value in ["2026-01-01", "2026-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", 5, None]:
        assert_problem(owner.get(f"gprs/?cursor={packed([False, [value, UUID_TEXT]])}"), 400, "invalid_input")


def test_a_number_that_no_database_compares_is_a_400(owner: Caller) -> None:
    for value in [5, 2**63, 10**100, "5", 5.5, True, None, UUID_TEXT]:  # a number of its own is a guess at how many there are
        assert_problem(owner.get(f"events/?cursor={packed([False, [value]])}"), 400, "invalid_input")


def test_a_row_that_comes_between_shifts_nobody_s_page(admin: Caller, db: None) -> None:
    for name in "bdf":
        factories.project(name)
    first = admin.get("projects/?page_size=2").json()
    factories.project("a")
    Project.objects.filter(name="b").delete()

    second = admin.get(first["next"]).json()

    assert [row["name"] for row in second["results"]] == ["f"]
    back = admin.get(second["previous"]).json()
    assert [row["name"] for row in back["results"]] == ["a", "d"]
    assert (back["previous"], back["next"] is not None) == (None, True)


def test_behind_the_last_row_there_is_an_empty_page_with_a_way_back(admin: Caller, db: None) -> None:
    for name in "abc":
        factories.project(name)
    first = admin.get("projects/?page_size=2").json()
    Project.objects.filter(name="c").delete()

    empty = admin.get(first["next"]).json()

    assert (empty["results"], empty["next"]) == ([], None)
    assert [row["name"] for row in admin.get(empty["previous"]).json()["results"]] == ["a"]


def test_filters_stay_in_the_links(owner: Caller, world: World) -> None:
    for _ in range(3):
        factories.gpr(world.slice, world.people.owner)

    link = owner.get("gprs/?page_size=1&state=QUEUED&name=gpr").json()["next"]

    assert "page_size=1" in link
    assert "state=QUEUED" in link
    assert len(owner.get(link).json()["results"]) == 1

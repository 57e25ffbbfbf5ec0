"""Quotas on pages: the administrator gives, changes and takes them; a member sees the bars of his workspace."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from core.clock import db_now
from inventory.models import Node
from journal.models import Event
from slices.models import Project, Quota, Slice
from slices.quotas.services import QuotaChange, quota_create
from tests import factories
from tests.builders import SHAPE
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

# Each day: tests/api/tenants/test_quotas.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

QUOTAS, GIVE = "/admin/quotas/", "/admin/quotas/create/"


def text(response: Any, status: int = 200) -> str:
    assert response.status_code == status, response.content
    return str(response.content.decode())


def give(owner: Project | Slice, guaranteed_gpus: int = 0, most_gpus: int | None = None) -> Quota:
    change: QuotaChange = {"guaranteed_gpus": guaranteed_gpus, "most_gpus": most_gpus}
    return quota_create(owner=owner, shape=SHAPE, change=change, actor=None, now=db_now())


def cells(markup: str) -> list[list[str]]:
    """The words of each row of the table, without its acts."""
    rows = re.findall(r'<tr id="quota-.*?</tr>', markup, re.DOTALL)
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)[:7]] for row in rows]


def test_each_project_stands_with_its_workspaces_and_what_they_hold(admin_world: AdminWorld, admin: Client) -> None:
    """`runs` of vision holds two nodes of 8 GPUs."""
    give(admin_world.slice.project, guaranteed_gpus=12)
    give(admin_world.slice, guaranteed_gpus=4, most_gpus=12)
    give(admin_world.waits.slice, most_gpus=8)

    shown = text(admin.get(QUOTAS))

    assert cells(shown) == [
        ["All of the project", SHAPE, "12", "no limit", "16", "4", "0"],
        ["vision", SHAPE, "4", "12", "16", "12", "0"],
        ["speech", SHAPE, "0", "8", "0", "0", "8"],
    ]
    assert f"{admin_world.slice.project.name} <span" in shown
    assert "16 are held, more than the 12 allowed: nothing is taken away, and nothing new starts until less is held." in shown


def test_without_any_it_says_what_a_quota_does(admin_world: AdminWorld, admin: Client) -> None:
    shown = text(admin.get(QUOTAS))

    assert "No quotas yet" in shown
    assert f'href="{GIVE}"' in shown
    Node.objects.update(shape="")
    assert cells(text(admin.get(QUOTAS, {"part": "rows"}))) == []


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_one_is_given_changed_and_deleted(headers: dict[str, str], admin_world: AdminWorld, admin: Client) -> None:
    assert f'<option value="{admin_world.slice.pk}">vision</option>' in text(admin.get(GIVE, headers=headers))
    given = {"owner": str(admin_world.slice.pk), "shape": SHAPE, "guaranteed_gpus": "0", "most_gpus": "12", "why": "A pilot."}

    made = admin.post(GIVE, given, headers=headers)

    quota = Quota.objects.get()
    assert (quota.owner, quota.guaranteed_gpus, quota.most_gpus) == (admin_world.slice, 0, 12)
    said = made.headers.get("HX-Trigger") or text(admin.get(QUOTAS))
    assert "vision H100-80GB: 0 GPUs guaranteed, 12 at most. 16 are held" in said

    assert 'value="12"' in text(admin.get(f"{QUOTAS}{quota.pk}/", headers=headers))
    admin.post(f"{QUOTAS}{quota.pk}/", {"guaranteed_gpus": "0", "most_gpus": ""}, headers=headers)
    quota.refresh_from_db(fields=["most_gpus"])
    assert quota.most_gpus is None

    admin.post(f"{QUOTAS}{quota.pk}/delete/", {"why": ""}, headers=headers)
    assert not Quota.objects.exists()
    kinds = Event.objects.filter(kind__startswith="quota.", actor=admin_world.people.admin).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["quota.created", "quota.changed", "quota.deleted"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"guaranteed_gpus": "1"}, "is guaranteed 0 GPUs of H100-80GB; 0 are left."),
        ({"guaranteed_gpus": "-1"}, "greater than or equal to 0"),
        ({"guaranteed_gpus": ""}, "This field is required."),
        ({"owner": "nobody"}, "Select a valid choice."),
        ({"shape": "A100"}, "Select a valid choice."),
        ({"why": "a\u0001b"}, "must not hold"),
    ],
)
def test_what_cannot_be_keeps_what_was_typed_and_says_why(
    changes: dict[str, str], told: str, admin_world: AdminWorld, admin: Client
) -> None:
    given = {"owner": str(admin_world.slice.pk), "shape": SHAPE, "guaranteed_gpus": "0", "most_gpus": "12", "why": "", **changes}

    shown = text(admin.post(GIVE, given), 422)

    assert told.lower() in shown.lower()
    assert 'value="12"' in shown
    assert not Quota.objects.exists()


def test_a_second_one_is_refused_in_the_dialog(admin_world: AdminWorld, admin: Client) -> None:
    give(admin_world.slice)

    shown = text(admin.post(GIVE, {"owner": str(admin_world.slice.pk), "shape": SHAPE, "guaranteed_gpus": "0"}, headers=HTMX))

    assert "There is already a quota of H100-80GB for workspace vision. Change that one." in shown


def test_what_workspaces_are_guaranteed_is_not_taken_from_under_them(admin_world: AdminWorld, admin: Client) -> None:
    quota = give(admin_world.slice.project, guaranteed_gpus=8)
    give(admin_world.slice, guaranteed_gpus=8)

    shown = text(admin.post(f"{QUOTAS}{quota.pk}/delete/", {"why": ""}), 409)

    assert "8 of its GPUs are guaranteed to workspaces" in shown
    assert Quota.objects.count() == 2


@pytest.mark.parametrize("persona", ["owner", "teammate", "admin"])
def test_a_workspace_shows_its_own_bars_and_its_project_s(persona: str, admin_world: AdminWorld) -> None:
    give(admin_world.slice.project, guaranteed_gpus=12)
    give(admin_world.slice, guaranteed_gpus=4, most_gpus=12)
    give(factories.make_slice(name="canary-slice", of=admin_world.slice.project))

    for query in ({}, {"part": "quotas"}):
        shown = text(client_of(getattr(admin_world.people, persona)).get("/workspaces/vision/", query))
        assert shown.count('class="quota"') == 2
        assert "16 now, 4 guaranteed, 12 borrowed, 12 at most" in shown
        assert "16 now, 12 guaranteed, 4 borrowed" in shown
        assert "16 are held, more than the 12 allowed" in shown


@pytest.mark.daily
def test_a_stranger_sees_neither_quotas_nor_their_pages(admin_world: AdminWorld) -> None:
    quota = give(admin_world.slice, most_gpus=16)
    outsider = client_of(admin_world.people.outsider)

    assert outsider.get("/workspaces/vision/", {"part": "quotas"}).status_code == 404
    for path in (QUOTAS, GIVE, f"{QUOTAS}{quota.pk}/", f"{QUOTAS}{quota.pk}/delete/"):
        assert (outsider.get(path).status_code, outsider.post(path, {}).status_code) in {(404, 404), (404, 405)}


def test_without_a_quota_a_workspace_shows_no_bar(admin_world: AdminWorld) -> None:
    assert 'class="quota"' not in text(client_of(admin_world.people.owner).get("/workspaces/vision/"))

"""The page of projects: who runs them, when workspaces end, and a dialog that says what archiving or removing would end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from core.clock import db_now
from slices.models import Life, ProjectAdmin, Slice
from tests.pages.admin_world import AdminWorld
from tests.pages.user_world import text

pytestmark = pytest.mark.django_db


def test_the_dialog_says_what_would_end_and_then_it_is_done_and_undone(admin_world: AdminWorld, admin: Client) -> None:
    vision = admin_world.slice
    path = f"/admin/projects/workspaces/{vision.pk}"

    asked = text(admin.get(f"{path}/remove/"))
    assert "Running: 1 request (runs). Boxes run to their end, unless you end them now." in asked
    assert "2 members (owner, teammate)" in asked
    assert "Given up then" not in text(admin.get(f"{path}/archive/"))
    admin.post(f"{path}/archive/", {"why": "Moved."})
    page = text(admin.get("/admin/projects/"))
    assert ("Archived" in page, "what runs goes on" in page) == (True, True)
    admin.post(f"{path}/restore/", {})
    vision.refresh_from_db()
    assert vision.life == Life.OPEN
    admin.post(f"{path}/remove/", {"drain": "now"})
    assert "/admin/projects/workspaces/" + str(vision.pk) not in admin.get("/admin/projects/").content.decode()
    assert "vision" in text(admin.get("/admin/projects/?removed=1"))
    assert "removed, for good" in text(admin.post(f"{path}/archive/", {}), 409)


def test_an_end_is_set_in_the_future_and_a_project_gets_administrators(admin_world: AdminWorld, admin: Client) -> None:
    vision, project = admin_world.slice, admin_world.slice.project
    end_url = f"/admin/projects/workspaces/{vision.pk}/end/"

    assert "It must be in the future" in text(admin.post(end_url, {"ends_at": "2020-01-01T00:00"}), 422)
    ends_at = (db_now() + timedelta(days=5)).replace(second=0, microsecond=0)
    admin.post(end_url, {"ends_at": f"{ends_at:%Y-%m-%dT%H:%M}"})
    assert Slice.objects.get(pk=vision.pk).ends_at == ends_at
    admin.post(f"/admin/projects/{project.pk}/end/", {"ends_at": f"{ends_at - timedelta(days=1):%Y-%m-%dT%H:%M}"})
    assert Slice.objects.get(pk=vision.pk).ends_at == ends_at - timedelta(days=1)
    admin.post(f"/admin/projects/{project.pk}/admins/add/", {"user": "teammate"})
    assert "run by teammate" in text(admin.get("/admin/projects/"))
    row = ProjectAdmin.objects.get()
    admin.post(f"/admin/projects/{project.pk}/admins/remove/", {"row": row.pk})
    assert not ProjectAdmin.objects.exists()


def test_a_project_is_archived_with_its_workspaces(admin_world: AdminWorld, admin: Client) -> None:
    project = admin_world.slice.project

    admin.post(f"/admin/projects/{project.pk}/archive/", {})

    assert set(project.slices.values_list("life", flat=True)) == {Life.ARCHIVED}
    admin.post(f"/admin/projects/{project.pk}/restore/", {})
    assert set(project.slices.values_list("life", flat=True)) == {Life.OPEN}

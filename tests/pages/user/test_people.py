"""The page of a workspace's people, as its owner, a viewer and an administrator of the project see it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from core.clock import db_now
from slices.closing.services import slice_close
from slices.models import Invitation, Life, Membership, ProjectAdmin, ServiceAccount, SliceGroup
from tests.pages.user_world import World, client_of, text

pytestmark = pytest.mark.django_db

PROVIDER = {"key": "corp", "label": "Corp SSO", "issuer": "https://id.example", "client_id": "egs", "client_secret": "x"}
PEOPLE = "/workspaces/vision/people/"


def test_an_owner_invites_changes_roles_and_removes_and_the_page_says_who_is_in(world: World, owner: Client) -> None:
    teammate = world.people.teammate

    assert "new@corp.example is invited" in toast(owner.post(f"{PEOPLE}add/", {"user": "New@Corp.example", "role": "editor"}))
    assert "teammate is editor" in toast(owner.post(f"{PEOPLE}{teammate.pk}/role/", {"role": "editor"}))
    page = text(owner.get(PEOPLE))
    assert [word in page for word in ("new@corp.example", "by owner", "teammate", "Editor")] == [True] * 4
    assert "needs an owner" in text(owner.post(f"{PEOPLE}{world.people.owner.pk}/role/", {"role": "viewer"}), 409)
    assert "Must be a mail address" in text(owner.post(f"{PEOPLE}add/", {"user": "a@b@c", "role": "viewer"}), 422)

    invited = Invitation.objects.get(name="new@corp.example")
    owner.post(f"{PEOPLE}invitations/{invited.pk}/withdraw/", {})
    owner.post(f"{PEOPLE}{teammate.pk}/remove/", {})
    assert not Invitation.objects.exists()
    assert not Membership.objects.filter(slice=world.slice, user=teammate).exists()


def test_an_owner_looks_after_the_programs_of_the_workspace(world: World, owner: Client) -> None:
    add = "/workspaces/vision/service-accounts/add/"
    assert "Letters, digits" in text(owner.post(add, {"name": "-", "role": "editor"}), 422)
    assert "vision:nightly is a service account" in toast(owner.post(add, {"name": "nightly", "role": "editor"}))
    program = ServiceAccount.objects.get()
    page = f"/workspaces/vision/service-accounts/{program.pk}/"
    assert page in text(owner.get(PEOPLE))
    made = text(owner.post(f"{page}tokens/new/", {"name": "pipeline", "scope": "gpr:write", "days": "30"}))
    (secret,) = re.findall(r"egsu_\w+", made)
    assert (secret in text(owner.get(page)), "pipeline" in text(owner.get(page))) == (False, True)
    token = program.user.tokens.get()
    assert "Token pipeline is revoked" in toast(owner.post(f"{page}tokens/{token.pk}/revoke/", {}))
    assert "vision:nightly is disabled" in toast(owner.post(f"{page}disable/", {}))
    assert "disabled" in text(owner.get(PEOPLE))
    viewer = client_of(world.people.teammate)
    assert ("vision:nightly" in text(viewer.get(PEOPLE)), viewer.get(page).status_code) == (True, 403)
    assert "vision:nightly is deleted" in toast(owner.post(f"{page}delete/", {}))
    assert ("vision:nightly" in text(owner.get(PEOPLE)), owner.get(page).status_code) == (False, 404)


def test_a_viewer_sees_who_is_in_and_changes_nothing(world: World) -> None:
    teammate = client_of(world.people.teammate)
    page = text(teammate.get(PEOPLE))

    assert "owner" in page
    assert not [word for word in ("Add a person", "people/add", "Remove", "Invited") if word in page]
    assert "Owners of the workspace add people" in page
    for path in ("add/", "groups/add/", f"{world.people.owner.pk}/role/", f"{world.people.owner.pk}/remove/"):
        assert teammate.post(PEOPLE + path, {"user": "x", "role": "owner"}).status_code == 403


def test_an_administrator_of_the_project_and_an_administrator_map_groups(world: World, settings: Any) -> None:
    admin = client_of(world.people.admin)
    settings.EGS_OIDC_PROVIDERS = [PROVIDER]
    ProjectAdmin.objects.create(project=world.slice.project, user=world.people.outsider, created_at=db_now())
    runner = client_of(world.people.outsider)

    assert "groups/add" in text(runner.get(PEOPLE))
    given = {"provider": "corp", "group": "robots", "role": "viewer"}
    assert "You are not in the group robots" in text(runner.post(f"{PEOPLE}groups/add/", given), 403)
    assert "Group robots has a role" in toast(admin.post(f"{PEOPLE}groups/add/", given))
    assert "robots" in text(runner.get(PEOPLE))
    group = SliceGroup.objects.get()
    assert "no role any more" in toast(runner.post(f"{PEOPLE}groups/{group.pk}/remove/", {}))

    assert "Group ops has a role" in toast(admin.post("/admin/people/groups/add/", {"provider": "corp", "group": "ops", "role": "auditor"}))
    assert "ops" in text(admin.get("/admin/people/"))


def test_a_closed_workspace_says_so_and_offers_nothing(world: World, owner: Client) -> None:
    slice_close(slice_=world.slice, to=Life.ARCHIVED, drain=False, actor=world.people.admin, now=db_now())

    page = text(owner.get("/workspaces/vision/"))
    assert "This workspace is archived." in page
    assert page.count("It takes no requests until an administrator of the platform opens it again.") == 2
    assert "You can only view this workspace" not in page
    assert "/workspaces/vision/create/" not in page + text(owner.get("/"))
    assert "people/add" not in text(owner.get(PEOPLE))
    assert "Workspace vision is archived" in text(owner.post(f"{PEOPLE}add/", {"user": "ben", "role": "viewer"}), 409)


def toast(response: Any) -> str:
    assert response.status_code == 302, response.content.decode()
    return text(response.client.get(PEOPLE))

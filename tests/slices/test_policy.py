"""The table of rights (accounts/policy.py): what each role in a workspace may do with it and with what is in it."""

from __future__ import annotations

import pytest
from django.apps import apps

from accounts.models import User
from accounts.policy import TABLE, ObjectKind, Verb, least_role, may
from slices.models import Membership, Role, Slice
from tests import factories

pytestmark = pytest.mark.django_db
PLACES = ["outsider", *Role.values, "admin"]


@pytest.fixture
def workspace() -> Slice:
    return factories.make_slice(factories.cluster(), owner=factories.user("founder"))


def person(place: str, workspace: Slice) -> User:
    user = factories.user(f"some-{place}", is_admin=place == "admin")
    if place in Role.values:
        Membership.objects.create(slice=workspace, user=user, role=place)
    return user


@pytest.mark.parametrize(
    ("verb", "those_who_may"),
    [
        (Verb.SEE, {"viewer", "editor", "owner", "admin"}),
        (Verb.CONNECT, {"viewer", "editor", "owner"}),
        (Verb.REQUEST, {"editor", "owner", "admin"}),
        (Verb.MANAGE, {"owner", "admin"}),
    ],
)
def test_a_role_in_a_workspace_includes_the_smaller_ones(verb: Verb, those_who_may: set[str], workspace: Slice) -> None:
    assert {place for place in PLACES if may(person(place, workspace), verb, workspace)} == those_who_may


def test_an_editor_changes_his_own_requests_until_he_is_a_viewer_and_an_owner_changes_all(workspace: Slice) -> None:
    editor = person("editor", workspace)
    gpr = factories.gpr(workspace, editor)

    assert may(editor, Verb.CHANGE, gpr)
    assert {place for place in ("outsider", "viewer", "owner", "admin") if may(person(place, workspace), Verb.CHANGE, gpr)} == {
        "owner",
        "admin",
    }
    Membership.objects.filter(user=editor).update(role=Role.VIEWER)
    assert not may(editor, Verb.CHANGE, gpr)


def test_what_the_table_does_not_name_nobody_may_do(workspace: Slice) -> None:
    assert not may(person("admin", workspace), Verb.READ_SECRET, workspace)


def test_each_kind_is_a_model_and_each_rule_of_roles_says_which_role_is_enough() -> None:
    models = {model._meta.model_name for model in apps.get_models()}
    assert {kind.value for kind in ObjectKind} - models == {ObjectKind.PLATFORM}
    assert [least_role(verb, ObjectKind.WORKSPACE) for verb in (Verb.SEE, Verb.REQUEST, Verb.MANAGE)] == ["viewer", "editor", "owner"]
    assert {kind for _, kind in TABLE} == set(ObjectKind)

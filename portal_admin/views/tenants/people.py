from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.models import ROLES_OF_GROUPS, GroupRole, PlatformRole, User
from accounts.people.services import group_role_add, group_role_remove, user_create, user_disable, user_enable, user_set_role
from core.rest.references import one_by_id
from portal_admin.forms import PersonForm, PlainForm, PlatformRoleForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.tenants.people import PeoplePage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.group_form import GroupForm
from portal_shared.forms.questions import Question, decide, sent

TOPICS = ("people",)


@require_GET
@admin_only
def people(request: PageRequest) -> HttpResponse:
    return show(request, PeoplePage.build(request), "people/page", rows="people/rows", groups="people/groups")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def add(request: PageRequest) -> HttpResponse:
    def create(name: str, email: str, role: str) -> str:
        made = user_create(name=name, email=email, role=PlatformRole(role), actor=request.user, now=request.now)
        return f"{made.name} is added. Print a first token with: manage.py egs_create_user {made.name}"

    text = "People who sign in through an identity provider are added by themselves. Add others here."
    return _decide(request, PersonForm(sent(request)), "Add a person", text, "Add person", create)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def role(request: PageRequest, pk: UUID) -> HttpResponse:
    user = _person(pk)

    def change(role: str) -> str:
        user_set_role(user=user, role=PlatformRole(role), actor=request.user, now=request.now)
        return f"{user.name} has the role {PlatformRole(role).label.lower()}"

    text = (
        "An administrator may do everything. An auditor sees everything and changes nothing. A member has the roles that workspaces give."
    )
    return _decide(
        request,
        PlatformRoleForm(sent(request), initial={"role": user.role}),
        f"Change the role of {user.name}",
        text,
        "Change role",
        change,
    )


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def disable(request: PageRequest, pk: UUID) -> HttpResponse:
    user = _person(pk)

    def do() -> str:
        user_disable(user=user, actor=request.user, now=request.now)
        return f"{user.name} is disabled"

    text = "Sessions, tokens and kubeconfigs stop at once. Waiting and running requests stay until somebody ends them."
    return _decide(request, PlainForm(sent(request)), f"Disable {user.name}?", text, "Disable", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def enable(request: PageRequest, pk: UUID) -> HttpResponse:
    user = _person(pk)

    def do() -> str:
        user_enable(user=user, actor=request.user, now=request.now)
        return f"{user.name} is enabled"

    return _decide(
        request, PlainForm(sent(request)), f"Enable {user.name} again?", "Tokens that have not expired work again.", "Enable", do
    )


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def add_group(request: PageRequest) -> HttpResponse:
    def do(provider: str, group: str, role: str) -> str:
        group_role_add(provider=provider, group=group, role=PlatformRole(role), actor=request.user, now=request.now)
        return f"Group {group} has a role"

    text = "Its people have the role now and when they sign in, and lose it when they leave the group. Roles that you give by hand stay."
    form = GroupForm(sent(request), roles=ROLES_OF_GROUPS)
    return _decide(request, form, "Give a group a role on the platform", text, "Give role", do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def remove_group(request: PageRequest, pk: UUID) -> HttpResponse:
    row = one_by_id(GroupRole.objects.all(), pk, what="group")

    def do() -> str:
        group_role_remove(row=row, actor=request.user, now=request.now)
        return f"Group {row.group} has no role any more"

    text = "People who have the role by it alone lose it at once."
    return _decide(request, PlainForm(sent(request)), f"Remove the group {row.group}?", text, "Remove group", do)


def _decide(request: PageRequest, form: forms.Form, title: str, text: str, verb: str, do: Callable[..., str]) -> HttpResponse:
    shell, back_url = admin_shell(request, page="people"), reverse("admin-people")
    question = Question(
        title, text, verb, request.path, back_url=back_url, form=form, shell=shell, is_plain=verb not in {"Disable", "Remove group"}
    )
    return decide(request, question, do, topics=TOPICS)


def _person(pk: UUID) -> User:
    return one_by_id(User.objects.all(), pk, what="person")

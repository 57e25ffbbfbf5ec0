from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb
from core.errors import NotFound
from core.rest.references import one_by_id
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.group_form import GroupForm
from portal_shared.forms.questions import decide, sent
from portal_shared.forms.service_form import ServiceForm
from portal_user.forms import InviteForm, RoleForm
from portal_user.pages.tenants.people import WorkspacePeoplePage, people_question
from slices.invitations.services import invitation_withdraw, member_add
from slices.models import Membership, Role, Slice
from slices.roles.groups import group_add, group_remove
from slices.selectors import slice_for
from slices.services import member_remove, member_set

TOPICS: Final = ("people",)
Do = Callable[..., str]


@require_GET
@signed_in
def people(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list` asks for the fragment."""
    page = WorkspacePeoplePage.build(request, slice_for(request.user, slice))
    template = "user/people/list.html" if request.GET.get("part") == "list" else "user/people/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def add(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = _managed(request, slice)

    def do(user: str, role: str) -> str:
        made = member_add(slice_=slice_, reference=user, role=Role(role), actor=request.user, now=request.now)
        return f"{made.user.name} is a member" if isinstance(made, Membership) else f"{made.name} is invited"

    text = (
        "People of your own workspaces are added at once, others are invited and join by themselves. "
        "Invite newcomers by mail address, and tell them to sign in: EGS writes to nobody who has no account."
    )
    question = people_question(
        request, slice_, InviteForm(sent(request), roles=Role.choices), title="Add or invite a person", text=text, verb="Add person"
    )
    return decide(request, question, do, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def role(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    slice_ = _managed(request, slice)
    member = _member(slice_, pk)

    text = "Owners manage people and requests of the workspace. Editors manage their own requests. Viewers look."
    if member.is_by_group:
        text += " A role that you give here stays, whatever the person's groups say."
    form = RoleForm(sent(request), roles=Role.choices, initial={"role": member.role})

    def set_role(role: Role) -> None:
        member_set(slice_=slice_, user=member.user, role=role, actor=request.user, now=request.now)

    return decide_role(request, slice_, member.user.name, form, text, set_role)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def remove(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    slice_ = _managed(request, slice)
    member = _member(slice_, pk)

    def do() -> str:
        member_remove(slice_=slice_, user=member.user, actor=request.user, now=request.now)
        return f"{member.user.name} is no member any more"

    text = "Kubeconfigs of this person end at once. Requests stay."
    return confirm(request, slice_, f"Remove {member.user.name}?", text, "Remove person", do)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def withdraw(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    slice_ = _managed(request, slice)
    row = one_by_id(slice_.invitations.select_related("slice"), pk, what="invitation")

    def do() -> str:
        invitation_withdraw(invitation=row, actor=request.user, now=request.now)
        return f"The invitation of {row.name} is withdrawn"

    title, text = f"Withdraw the invitation of {row.name}?", "Nobody can accept it any more."
    return confirm(request, slice_, title, text, "Withdraw invitation", do)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def add_group(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = _managed(request, slice)

    def do(provider: str, group: str, role: str) -> str:
        group_add(slice_=slice_, provider=provider, group=group, role=Role(role), actor=request.user, now=request.now)
        return f"Group {group} has a role"

    text = "Its people become members now and when they sign in, and lose the role when they leave the group."
    form = GroupForm(sent(request), roles=Role.choices)
    return decide(
        request, people_question(request, slice_, form, title="Give a group a role", text=text, verb="Give role"), do, topics=TOPICS
    )


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def remove_group(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    slice_ = _managed(request, slice)
    row = one_by_id(slice_.groups.select_related("slice"), pk, what="group")

    def do() -> str:
        group_remove(group=row, actor=request.user, now=request.now)
        return f"Group {row.group} has no role any more"

    text = "People who are members by it alone leave at once."
    return confirm(request, slice_, f"Remove the group {row.group}?", text, "Remove group", do)


def decide_role(
    request: PageRequest, slice_: Slice, name: str, form: RoleForm, text: str, set_role: Callable[[Role], None]
) -> HttpResponse:
    def do(role: str) -> str:
        set_role(Role(role))
        return f"{name} is {Role(role).label.lower()}"

    question = people_question(request, slice_, form, title=f"Change the role of {name}", text=text, verb="Change role")
    return decide(request, question, do, topics=TOPICS)


def confirm(request: PageRequest, slice_: Slice, title: str, text: str, verb: str, do: Do, *, is_plain: bool = False) -> HttpResponse:
    form: forms.Form = ServiceForm(sent(request))
    return decide(request, people_question(request, slice_, form, title=title, text=text, verb=verb, is_plain=is_plain), do, topics=TOPICS)


def _managed(request: PageRequest, slice: str) -> Slice:
    return slice_for(request.user, slice, verb=Verb.MANAGE)


def _member(slice_: Slice, pk: UUID) -> Membership:
    row = slice_.memberships.select_related("user").filter(user=pk, user__is_service=False).first()
    if row is None:
        raise NotFound("member")
    return row

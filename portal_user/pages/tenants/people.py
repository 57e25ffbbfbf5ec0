"""The page of a workspace's people: its members, invitations, and groups of identity providers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django import forms
from django.urls import reverse

from accounts.oidc.providers import providers
from accounts.policy import Verb, may
from portal_shared.access import PageRequest, why_not_write
from portal_shared.forms.questions import Question
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.pages.tenants.access import shell_of
from slices.models import Invitation, Membership, Role, Slice, SliceGroup

ROWS_MAX: Final = 500
NEEDS_OWNER: Final = "Owners of the workspace add people and change their roles."


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: UUID
    name: str
    role: str
    note: str
    role_url: str  # both empty: not allowed, or his groups decide
    remove_url: str

    @classmethod
    def of(cls, row: Membership, *, slice_name: str, may_manage: bool) -> MemberRow:
        role_url, remove_url = (
            reverse(name, args=[slice_name, row.user_id]) if may_manage else "" for name in ("member-role", "member-remove")
        )
        remove_url = "" if row.is_by_group else remove_url
        note = "by a group" if row.is_by_group else "" if row.user.is_active else "disabled"
        return cls(row.user_id, row.user.name, str(Role(row.role).label), note, role_url, remove_url)


@dataclass(frozen=True, slots=True)
class OpenInvitationRow:
    id: UUID
    name: str
    role: str
    invited_by: str
    at: datetime
    withdraw_url: str

    @classmethod
    def of(cls, row: Invitation, *, slice_name: str, may_write: bool) -> OpenInvitationRow:
        url = reverse("member-invitation-withdraw", args=[slice_name, row.pk]) if may_write else ""
        return cls(row.pk, row.name, str(Role(row.role).label), row.invited_by.name, row.created_at, url)


@dataclass(frozen=True, slots=True)
class GroupRow:
    id: UUID
    group: str
    provider: str
    role: str
    remove_url: str

    @classmethod
    def of(cls, row: SliceGroup, *, slice_name: str, may_manage: bool) -> GroupRow:
        url = reverse("member-group-remove", args=[slice_name, row.pk]) if may_manage else ""
        return cls(row.pk, row.group, row.provider, str(Role(row.role).label), url)


@dataclass(frozen=True, slots=True)
class WorkspacePeoplePage:
    shell: Shell
    mark: WorkspaceMark
    members: tuple[MemberRow, ...]
    invitations: tuple[OpenInvitationRow, ...]
    groups: tuple[GroupRow, ...]
    url: str  # of its fragment
    add_url: str  # empty: not allowed
    group_url: str  # empty: not allowed, or there is no provider
    has_groups: bool  # whether there is anything to say of groups
    why_not: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> WorkspacePeoplePage:
        manages = may(request.user, Verb.MANAGE, slice_)
        may_manage = manages and request.may_write and slice_.is_open
        members = slice_.memberships.select_related("user")[:ROWS_MAX]
        invitations = slice_.invitations.select_related("invited_by")[:ROWS_MAX] if manages else ()
        groups = slice_.groups.all()[:ROWS_MAX]
        name = slice_.name
        return cls(
            shell=shell_of(request, slice_, page="people"),
            mark=WorkspaceMark.of(slice_),
            members=tuple(MemberRow.of(row, slice_name=name, may_manage=may_manage) for row in members),
            invitations=tuple(OpenInvitationRow.of(row, slice_name=name, may_write=may_manage) for row in invitations),
            groups=tuple(GroupRow.of(row, slice_name=name, may_manage=may_manage) for row in groups),
            url=f"{reverse('workspace-people', args=[name])}?part=list",
            add_url=reverse("member-add", args=[name]) if may_manage else "",
            group_url=reverse("member-group-add", args=[name]) if may_manage and providers() else "",
            has_groups=bool(providers() or groups),
            why_not="" if may_manage else why_not_write(request) or NEEDS_OWNER if slice_.is_open else "",
        )


def people_question(
    request: PageRequest, slice_: Slice, form: forms.Form, *, title: str, text: str, verb: str, is_plain: bool = True
) -> Question:
    back_url = reverse("workspace-people", args=[slice_.name])
    shell = shell_of(request, slice_, page="people")
    return Question(title, text, verb, request.path, back_url=back_url, form=form, shell=shell, is_plain=is_plain)

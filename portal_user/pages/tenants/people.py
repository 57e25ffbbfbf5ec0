"""Shows the page of a workspace's people: its members, invitations, and groups of identity providers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django import forms
from django.urls import reverse

from accounts.models import ApiToken
from accounts.oidc.providers import providers
from accounts.policy import Verb, may
from portal_shared.access import PageRequest, why_not_write
from portal_shared.forms.questions import Question
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.pages.account import TOKENS_MAX, TokenRow
from portal_user.pages.tenants.access import shell_of
from slices.models import Invitation, Membership, Role, ServiceAccount, Slice, SliceGroup
from slices.service_accounts.selectors import service_accounts_of

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
class WorkspaceGroupRow:
    id: UUID
    group: str
    provider: str
    role: str
    remove_url: str

    @classmethod
    def of(cls, row: SliceGroup, *, slice_name: str, may_manage: bool) -> WorkspaceGroupRow:
        url = reverse("member-group-remove", args=[slice_name, row.pk]) if may_manage else ""
        return cls(row.pk, row.group, row.provider, str(Role(row.role).label), url)


@dataclass(frozen=True, slots=True)
class ProgramRow:
    id: UUID
    name: str
    source: str
    role: str
    note: str
    url: str  # of its tokens; all empty: not allowed
    role_url: str
    disable_url: str  # one of these two is empty
    enable_url: str
    delete_url: str

    @classmethod
    def of(cls, row: ServiceAccount, *, slice_name: str, sees_tokens: bool, may_manage: bool) -> ProgramRow:
        made_by = f"Made by {row.created_by.name}" if row.created_by else "Made by an administrator"
        is_active = row.user.is_active
        switch = reverse(f"service-account-{'disable' if is_active else 'enable'}", args=[slice_name, row.pk]) if may_manage else ""
        role = getattr(row, "role", None)  # annotated
        may_delete = is_active or row.cluster is None  # a disabled one of a cluster would come back
        return cls(
            id=row.pk,
            name=row.user.name,
            source=f"{row.cluster_user} of cluster {row.cluster.name}" if row.cluster else made_by,
            role=str(Role(role).label) if role else "None",
            note="" if is_active else "disabled",
            url=reverse("service-account", args=[slice_name, row.pk]) if sees_tokens else "",
            role_url=reverse("service-account-role", args=[slice_name, row.pk]) if may_manage else "",
            disable_url=switch if is_active else "",
            enable_url="" if is_active else switch,
            delete_url=reverse("service-account-delete", args=[slice_name, row.pk]) if may_manage and may_delete else "",
        )


@dataclass(frozen=True, slots=True)
class ProgramPage:
    """Shows one service account with its tokens."""

    shell: Shell
    mark: WorkspaceMark
    program: ProgramRow
    tokens: tuple[TokenRow, ...]
    url: str  # of its fragment
    new_url: str  # empty: not allowed, or it is disabled
    why_not: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice, account: ServiceAccount) -> ProgramPage:
        may_manage = request.may_write and slice_.is_open

        def revoke_url(token: ApiToken) -> str:
            return reverse("service-token-revoke", args=[slice_.name, account.pk, token.pk]) if may_manage else ""

        tokens = ApiToken.objects.filter(user=account.pk)[:TOKENS_MAX]
        may_make = may_manage and account.user.is_active
        return cls(
            shell=shell_of(request, slice_, page="people"),
            mark=WorkspaceMark.of(slice_),
            program=ProgramRow.of(account, slice_name=slice_.name, sees_tokens=True, may_manage=may_manage),
            tokens=tuple(TokenRow.of(token, now=request.now, revoke_url=revoke_url(token)) for token in tokens),
            url=f"{reverse('service-account', args=[slice_.name, account.pk])}?part=list",
            new_url=reverse("service-token-new", args=[slice_.name, account.pk]) if may_make else "",
            why_not="" if may_manage else why_not_write(request),
        )


@dataclass(frozen=True, slots=True)
class WorkspacePeoplePage:
    shell: Shell
    mark: WorkspaceMark
    members: tuple[MemberRow, ...]
    invitations: tuple[OpenInvitationRow, ...]
    groups: tuple[WorkspaceGroupRow, ...]
    programs: tuple[ProgramRow, ...]
    url: str  # of its fragment
    add_url: str  # empty: not allowed
    program_url: str
    group_url: str  # empty: not allowed, or there is no provider
    has_groups: bool  # whether there is anything to say of groups
    why_not: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> WorkspacePeoplePage:
        manages = may(request.user, Verb.MANAGE, slice_)
        may_manage = manages and request.may_write and slice_.is_open
        members = slice_.memberships.filter(user__is_service=False).select_related("user")[:ROWS_MAX]
        invitations = slice_.invitations.select_related("invited_by")[:ROWS_MAX] if manages else ()
        groups = slice_.groups.all()[:ROWS_MAX]
        name = slice_.name
        return cls(
            shell=shell_of(request, slice_, page="people"),
            mark=WorkspaceMark.of(slice_),
            members=tuple(MemberRow.of(row, slice_name=name, may_manage=may_manage) for row in members),
            invitations=tuple(OpenInvitationRow.of(row, slice_name=name, may_write=may_manage) for row in invitations),
            groups=tuple(WorkspaceGroupRow.of(row, slice_name=name, may_manage=may_manage) for row in groups),
            programs=tuple(
                ProgramRow.of(row, slice_name=name, sees_tokens=manages, may_manage=may_manage)
                for row in service_accounts_of(slice_).order_by("user__name")
            ),
            url=f"{reverse('workspace-people', args=[name])}?part=list",
            add_url=reverse("member-add", args=[name]) if may_manage else "",
            program_url=reverse("service-account-add", args=[name]) if may_manage else "",
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

"""Shows people with their roles on the platform."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max, QuerySet
from django.urls import reverse

from accounts.models import GroupRole, PlatformRole, RoleSource, User
from accounts.oidc.providers import providers
from core.pages.parts import ListFoot
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell

ORDER = ("name", "id")
GROUPS_MAX = 500


@dataclass(frozen=True, slots=True)
class PersonRow:
    id: UUID
    name: str
    email: str
    role: str
    role_note: str
    is_active: bool
    identities: str
    workspace_count: int
    last_seen_at: datetime | None
    role_url: str
    disable_url: str  # one of these two is empty
    enable_url: str

    @classmethod
    def of(cls, user: User, *, seen_at: datetime | None) -> PersonRow:
        switch = reverse("admin-person-disable" if user.is_active else "admin-person-enable", args=[user.pk])
        return cls(
            id=user.pk,
            name=user.name,
            email=user.email,
            role=PlatformRole(user.role).label,
            role_note="by a group" if user.role_source == RoleSource.GROUP else "",
            is_active=user.is_active,
            identities=", ".join(identity.provider for identity in user.identities.all()),
            workspace_count=len(user.memberships.all()),
            last_seen_at=seen_at,
            role_url=reverse("admin-person-role", args=[user.pk]),
            disable_url=switch if user.is_active else "",
            enable_url="" if user.is_active else switch,
        )


@dataclass(frozen=True, slots=True)
class PlatformGroupRow:
    id: UUID
    group: str
    provider: str
    role: str
    remove_url: str

    @classmethod
    def of(cls, row: GroupRole) -> PlatformGroupRow:
        return cls(row.pk, row.group, row.provider, str(PlatformRole(row.role).label), reverse("admin-group-remove", args=[row.pk]))


@dataclass(frozen=True, slots=True)
class PeoplePage:
    shell: Shell
    people: tuple[PersonRow, ...]
    groups: tuple[PlatformGroupRow, ...]
    may_add_group: bool  # there is a provider
    foot: ListFoot
    url: str
    name: str
    read_only: str

    @classmethod
    def build(cls, request: PageRequest) -> PeoplePage:
        url, name = reverse("admin-people"), request.GET.get("name", "").strip()[:63]
        filters = {"name": name}
        found = page_of(request, _named(name), ordering=ORDER)
        seen = dict(
            User.objects.filter(pk__in=[user.pk for user in found.rows]).annotate(at=Max("logins__last_seen_at")).values_list("pk", "at")
        )
        return cls(
            shell=admin_shell(request, page="people"),
            groups=tuple(map(PlatformGroupRow.of, GroupRole.objects.all()[:GROUPS_MAX])),
            may_add_group=bool(providers()),
            people=tuple(PersonRow.of(user, seen_at=seen[user.pk]) for user in found.rows),
            foot=foot_of(found, url, filters),
            url=url_with(url, {**filters, "cursor": request.GET.get("cursor", ""), "part": "rows"}),
            name=name,
            read_only=why_not_write(request),
        )


def _named(name: str) -> QuerySet[User]:
    people = User.objects.prefetch_related("identities", "memberships")
    return people.filter(name__icontains=name) if name and "\x00" not in name else people

"""Shows policies of the platform, of projects and of workspaces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Subquery
from django.urls import reverse

from core.pages.parts import ListFoot
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of
from portal_shared.parts.policies import PolicyPanel
from portal_shared.shell import Shell
from slices.models import Life, Policy, PolicyVersion
from slices.policies.selectors import POLICY_ORDER, policies_visible_to
from slices.policies.services import policy_of
from slices.policies.terms import TERMS


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """`mark` is None for the platform and for projects."""

    id: UUID
    name: str
    kind: str
    mark: Mark | None
    url: str
    own: tuple[str, ...]
    changed_at: datetime | None
    changed_by: str

    @classmethod
    def of(cls, policy: Any) -> PolicyRow:
        return cls(
            id=policy.pk,
            name="The platform" if policy.project is None and policy.slice is None else str(policy),
            kind=f"workspace of {policy.slice.project.name}" if policy.slice else "project" if policy.project else "",
            mark=Mark.of(policy.slice) if policy.slice else None,
            url=reverse("admin-policy", args=[policy.pk]),
            own=tuple(TERMS[name].label for name in TERMS if name in policy.terms),
            changed_at=policy.changed_at,
            changed_by=policy.changed_by or "EGS",
        )


@dataclass(frozen=True, slots=True)
class PoliciesPage:
    shell: Shell
    rows: tuple[PolicyRow, ...]
    foot: ListFoot

    @classmethod
    def build(cls, request: PageRequest) -> PoliciesPage:
        policy_of(None)  # it is listed even if nobody has changed it
        last = PolicyVersion.objects.filter(pk=OuterRef("version"))
        changed = {"changed_at": Subquery(last.values("made_at")), "changed_by": Subquery(last.values("made_by__name"))}
        there = policies_visible_to(request.user).exclude(slice__life=Life.REMOVED).exclude(project__life=Life.REMOVED)
        found = page_of(request, there.annotate(**changed), ordering=POLICY_ORDER)
        shell = admin_shell(request, page="policies")
        return cls(shell, tuple(map(PolicyRow.of, found.rows)), foot_of(found, reverse("admin-policies")))


@dataclass(frozen=True, slots=True)
class AdminPolicyPage:
    shell: Shell
    panel: PolicyPanel
    read_only: str  # why there are no buttons
    url: str

    @classmethod
    def build(cls, request: PageRequest, policy: Policy) -> AdminPolicyPage:
        def url(name: str, term: str) -> str:
            return reverse(name, args=[policy.pk, term])

        read_only = why_not_write(request)
        acts: dict[str, Any] = {
            "change_url": lambda term: url("admin-policy-change", term),
            "inherit_url": lambda term: url("admin-policy-inherit", term),
        }
        panel = PolicyPanel.build(policy, request.user, **({} if read_only else acts))
        return cls(admin_shell(request, page="policies"), panel, read_only, reverse("admin-policy", args=[policy.pk]))

"""Shows quotas by project, with their use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from django.urls import reverse

from core.pages import words
from core.pages.parts import ListFoot, Meter
from core.pages.table import RowGroup
from gpr.quotas.selectors import QuotaUsage, quota_usages
from inventory.selectors import shapes_known
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell
from slices.models import Project
from slices.selectors import QUOTA_ORDER, quotas_visible_to


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """`mark` is None for the project's own quota."""

    id: UUID
    mark: Mark | None
    name: str
    shape: str
    change_url: str
    delete_url: str
    guaranteed: int
    most: int | None
    held: int
    borrowed: int
    wanted: int
    note: str
    meter: Meter

    @classmethod
    def of(cls, usage: QuotaUsage) -> QuotaRow:
        quota = usage.quota
        return cls(
            id=quota.pk,
            mark=Mark.of(quota.slice) if quota.slice else None,
            name=f"{quota.shape} of {quota.owner.name}",
            shape=quota.shape,
            change_url=reverse("admin-quota", args=[quota.pk]),
            delete_url=reverse("admin-quota-delete", args=[quota.pk]),
            guaranteed=quota.guaranteed_gpus,
            most=quota.most_gpus,
            held=usage.held_gpus,
            borrowed=usage.borrowed_gpus,
            wanted=usage.wanted_gpus,
            note=usage.note,
            meter=Meter(usage.held_gpus, guaranteed_count=quota.guaranteed_gpus, limit_count=quota.most_gpus),
        )


@dataclass(frozen=True, slots=True)
class QuotasPage:
    shell: Shell
    groups: tuple[RowGroup[QuotaRow], ...]
    foot: ListFoot
    url: str  # of its fragment
    read_only: str  # why there are no buttons
    why_none: str  # why quotas cannot be made yet, or empty

    @classmethod
    def build(cls, request: PageRequest) -> QuotasPage:
        url = reverse("admin-quotas")
        found = page_of(request, quotas_visible_to(request.user), ordering=QUOTA_ORDER)
        return cls(
            shell=admin_shell(request, page="quotas"),
            groups=_groups(quota_usages(found.rows)),
            foot=foot_of(found, url),
            url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "rows"}),
            read_only=why_not_write(request),
            why_none=_why_none(),
        )


def _groups(found: Sequence[QuotaUsage]) -> tuple[RowGroup[QuotaRow], ...]:
    groups = []
    for number, (project, members) in enumerate(groupby(found, key=lambda usage: usage.quota.tenant)):
        rows = tuple(QuotaRow.of(usage) for usage in members)
        guaranteed = sum(row.guaranteed for row in rows if row.mark is None)
        told = f"{words.plural(guaranteed, 'GPU')} guaranteed" if guaranteed else "nothing guaranteed"
        groups.append(RowGroup(f"quotas-{number}", project.name, rows, note=told))
    return tuple(groups)


def _why_none() -> str:
    if not Project.objects.exists():
        return "There is no project yet."
    return "" if shapes_known() else "There are no GPUs yet: quotas are given by their shape."

"""Shows a workspace's quotas and its project's, as bars."""

from __future__ import annotations

from dataclasses import dataclass

from core.pages.parts import Meter
from gpr.quotas.selectors import QuotaUsage, quota_usages
from slices.models import Slice
from slices.selectors import quotas_of


@dataclass(frozen=True, slots=True)
class QuotaBar:
    label: str
    meter: Meter
    note: str

    @classmethod
    def of(cls, usage: QuotaUsage) -> QuotaBar:
        quota = usage.quota
        label = f"{quota.shape} of this workspace" if quota.slice else f"{quota.shape} of project {quota.tenant.name}"
        meter = Meter(usage.held_gpus, guaranteed_count=quota.guaranteed_gpus, limit_count=quota.most_gpus)
        return cls(label, meter, usage.note)


def quota_bars(slice_: Slice) -> tuple[QuotaBar, ...]:
    """Returns bars by shape, the workspace's first. One query if there are none."""
    found = sorted(quotas_of(slice_), key=lambda quota: (quota.shape, quota.slice is None))
    return tuple(QuotaBar.of(usage) for usage in quota_usages(found)) if found else ()

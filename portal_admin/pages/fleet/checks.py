"""Check policies and the default limits."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from core.pages import words
from inventory.models import CheckPolicy
from inventory.selectors import check_policies_known_to, clusters_visible_to
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, why_not_write
from portal_shared.shell import Shell
from protocol.nodes.check_limits import LIMITS, Limit, amount, says


@dataclass(frozen=True, slots=True)
class CheckPolicyRow:
    id: UUID
    name: str
    cluster: str
    shape: str  # empty: all
    limits: tuple[str, ...]
    images: tuple[str, ...]
    others: tuple[str, ...]
    change_url: str
    delete_url: str

    @classmethod
    def of(cls, policy: CheckPolicy) -> CheckPolicyRow:
        others = [f"storage class {policy.storage_class}"] if policy.storage_class else []
        others += [f"RDMA subnet {policy.rdma_subnet}"] if policy.rdma_subnet else []
        others += [f"runtime class {policy.runtime_class}"] if policy.runtime_class else []
        others += [f"pull secret {policy.pull_secret}"] if policy.pull_secret else []
        others += [f"without {words.step_name(step)}" for step in policy.skipped_steps]
        return cls(
            id=policy.pk,
            name=policy.name,
            cluster=policy.cluster.name,
            shape=policy.shape,
            limits=tuple(f"{says(name)}: {_bound(LIMITS[name], value)}" for name, value in policy.limits.items() if name in LIMITS),
            images=tuple(f"{name}: {image}" for name, image in policy.images.items()),
            others=tuple(others),
            change_url=reverse("admin-check-policy", args=[policy.pk]),
            delete_url=reverse("admin-check-policy-delete", args=[policy.pk]),
        )


@dataclass(frozen=True, slots=True)
class OwnLimit:
    says: str
    bound: str
    by_gpu: str
    is_warning: bool

    @classmethod
    def of(cls, limit: Limit) -> OwnLimit:
        by_gpu = ", ".join(f"{gpu} {value:g}" for gpu, value in limit.by_gpu.items())
        bound = "only measured" if limit.value is None else _bound(limit, limit.value)
        return cls(limit.says, bound, by_gpu, limit.is_warning)


@dataclass(frozen=True, slots=True)
class ChecksPage:
    shell: Shell
    policies: tuple[CheckPolicyRow, ...]
    own: tuple[OwnLimit, ...]
    read_only: str  # why there are no buttons
    has_clusters: bool

    @classmethod
    def build(cls, request: PageRequest) -> ChecksPage:
        return cls(
            shell=admin_shell(request, page="checks"),
            policies=tuple(CheckPolicyRow.of(policy) for policy in check_policies_known_to(request.user)),
            own=tuple(OwnLimit.of(limit) for limit in LIMITS.values()),
            read_only=why_not_write(request),
            has_clusters=clusters_visible_to(request.user).exists(),
        )


def _bound(limit: Limit, value: float) -> str:
    return f"at {'least' if limit.is_least else 'most'} {amount(value)}{f' {limit.unit}' if limit.unit else ''}"
